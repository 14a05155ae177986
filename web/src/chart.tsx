/** A chart of live series by uPlot, in the colours of the page. */

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

export interface Line {
  label: string;
  /** The name of a custom property of the style sheet. */
  colour: string;
  values: (number | null)[];
  dash?: number[];
}

export interface Props {
  title: string;
  unit: string;
  /** Seconds since 1970, or with `plain` any figures. */
  at: number[];
  lines: Line[];
  /** The upper end of the scale, where it is known. */
  max?: number;
  /** The axis below shows figures in this unit rather than times. */
  plain?: string;
}

const HEIGHT = 190;

export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** The axes below and beside a plot. */
export function axes(): [uPlot.Axis, uPlot.Axis] {
  const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
  return [
    { ...axis, size: 34, space: 70 },
    { ...axis, size: 56, space: 34 },
  ];
}

/** Keeps a plot as wide as its place and in the colours of the page, until what it returns is called. */
export function keep(node: HTMLElement, height: number, make: () => uPlot): () => void {
  let plot = make();
  const redraw = () => {
    plot.destroy();
    plot = make();
  };
  const resized = new ResizeObserver(() => plot.setSize({ width: node.clientWidth, height }));
  resized.observe(node);
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  scheme.addEventListener("change", redraw);
  return () => {
    resized.disconnect();
    scheme.removeEventListener("change", redraw);
    plot.destroy();
  };
}

function options(props: Props, width: number): uPlot.Options {
  const [below, beside] = axes();
  const value = (_: uPlot, v: number | null) => (v === null || v === undefined ? "–" : `${v.toFixed(1)} ${props.unit}`);
  return {
    width,
    height: HEIGHT,
    scales: {
      x: { time: !props.plain },
      y: { range: (_, __, high) => [0, props.max ?? Math.max(high * 1.1 || 0, 1)] },
    },
    axes: [{ ...below, label: props.plain, labelSize: props.plain ? 18 : 0 }, beside],
    series: [
      {},
      ...props.lines.map((line) => ({
        label: line.label,
        stroke: colour(line.colour),
        width: 2,
        dash: line.dash,
        points: { show: false },
        value,
      })),
    ],
    legend: { live: true },
    cursor: { y: false },
  };
}

export function Chart(props: Props) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const shown = useRef(props);
  shown.current = props;
  const labels = props.lines.map((line) => line.label).join();

  useEffect(() => {
    const node = place.current;
    if (!node) return;
    const drawn = keep(node, HEIGHT, () => {
      const { at, lines } = shown.current;
      const data = [at, ...lines.map((line) => line.values)] as uPlot.AlignedData;
      plot.current = new uPlot(options(shown.current, node.clientWidth), data, node);
      return plot.current;
    });
    return () => {
      drawn();
      plot.current = null;
    };
  }, [labels]);

  useEffect(() => {
    plot.current?.setData([props.at, ...props.lines.map((line) => line.values)] as uPlot.AlignedData);
    // What is under the cursor, or else the latest.
    if (plot.current?.cursor.idx == null) plot.current?.setLegend({ idx: props.at.length - 1 });
  }, [props.at]);

  const last = props.lines.map((line) => `${line.label} ${line.values.at(-1)?.toFixed(1) ?? "unknown"} ${props.unit}`);
  return (
    <div class="chart" role="img" aria-label={`${props.title}: ${last.join(", ")}`}>
      <div class="caption">
        {props.title} <span class="muted">{props.unit}</span>
      </div>
      <div ref={place} aria-hidden="true" />
    </div>
  );
}
