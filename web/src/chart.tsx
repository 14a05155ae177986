/** A chart of live series by uPlot, in the colours of the page. */

import { useSignal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { count } from "./text";

export interface Line {
  label: string;
  /** The name of a custom property of the style sheet. */
  colour: string;
  values: (number | null)[];
  dash?: number[];
}

/** Something that happened. */
export interface Mark {
  /** Seconds since 1970. */
  at: number;
  severity: "bad" | "good" | "info";
  text: string;
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
  /** The axis beside is logarithmic. */
  log?: boolean;
  marks?: Mark[];
}

/** How near to a mark, in pixels, the cursor shows its text. */
const NEAR = 8;
const MARK_COLOURS = { bad: "--red", good: "--green", info: "--muted" };

/** Draws each mark as a dotted vertical. */
function drawMarks(plot: uPlot, marks: Mark[]): void {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash([2 * devicePixelRatio, 3 * devicePixelRatio]);
  for (const mark of marks) {
    const x = plot.valToPos(mark.at, "x", true);
    if (!(x >= bbox.left && x <= bbox.left + bbox.width)) continue;
    ctx.strokeStyle = colour(MARK_COLOURS[mark.severity]);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
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

function options(shown: { current: Props }, near: (text: string) => void, width: number): uPlot.Options {
  const props = shown.current;
  const marks = () => shown.current.marks ?? [];
  const [below, beside] = axes();
  const value = (_: uPlot, v: number | null) => (v === null || v === undefined ? "–" : `${v.toFixed(v < 1 && props.log ? 3 : 1)} ${props.unit}`);
  return {
    width,
    height: HEIGHT,
    scales: {
      x: { time: !props.plain },
      y: props.log ? { distr: 3 } : { range: (_, __, high) => [0, props.max ?? Math.max(high * 1.1 || 0, 1)] },
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
    hooks: {
      draw: [(plot) => drawMarks(plot, marks())],
      setCursor: [
        (plot) => {
          const { left } = plot.cursor;
          const found = marks().filter((mark) => Math.abs(plot.valToPos(mark.at, "x") - (left ?? -1)) < NEAR);
          near(left === undefined || left < 0 ? "" : found.map((mark) => mark.text).join("; "));
        },
      ],
    },
  };
}

export function Chart(props: Props) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const shown = useRef(props);
  const near = useSignal("");
  shown.current = props;
  const labels = props.lines.map((line) => line.label).join();

  // Before the first paint, so that nothing below moves.
  useLayoutEffect(() => {
    const node = place.current;
    if (!node) return;
    const drawn = keep(node, HEIGHT, () => {
      const { at, lines } = shown.current;
      const data = [at, ...lines.map((line) => line.values)] as uPlot.AlignedData;
      plot.current = new uPlot(options(shown, (text) => (near.value = text), node.clientWidth), data, node);
      return plot.current;
    });
    return () => {
      drawn();
      plot.current = null;
    };
  }, [labels]);

  useLayoutEffect(() => {
    plot.current?.setData([props.at, ...props.lines.map((line) => line.values)] as uPlot.AlignedData);
    // What is under the cursor, or else the latest.
    if (plot.current?.cursor.idx == null) plot.current?.setLegend({ idx: props.at.length - 1 });
  }, [props.at, props.marks]);

  const last = props.lines.map((line) => `${line.label} ${line.values.at(-1)?.toFixed(1) ?? "unknown"} ${props.unit}`);
  const events = props.marks?.length ? `; ${count(props.marks.length, "event")}` : "";
  return (
    <div class="chart" role="img" aria-label={`${props.title}: ${last.join(", ")}${events}`}>
      <div class="caption">
        {props.title} <span class="muted">{props.unit}</span>
      </div>
      <div ref={place} aria-hidden="true" />
      {props.marks && <div class="near muted">{near.value}</div>}
    </div>
  );
}
