/** How large the pool should be: hits by size, as far as that was measured, and what other sizes would bring. */

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { axes, colour, keep } from "../chart";
import type { Advice } from "../model";
import { Table } from "../parts";
import { bytes, figure, latency, span } from "../text";

const HEIGHT = 240;

/** The curve, whose part that was not measured is dashed and on another ground. */
function Curve(props: { advice: Advice }) {
  const place = useRef<HTMLDivElement>(null);
  const { advice } = props;
  const last = advice.curve.at(-1);

  useEffect(() => {
    const node = place.current;
    if (!node || !last) return;
    const most = Math.max(...advice.sizes.map((size) => size.pool_bytes), last.pool_bytes * 2);
    const at = [...advice.curve.map((point) => point.pool_bytes), most];
    const hits = advice.curve.map((point) => point.hit_ratio * 100);
    const gap = hits.map(() => null);
    const beyond = [...gap.slice(1), hits.at(-1)!, hits.at(-1)!];
    const draw = () => {
      const shade = (plot: uPlot) => {
        const from = plot.valToPos(last.pool_bytes, "x", true);
        const { left, top, width, height } = plot.bbox;
        plot.ctx.fillStyle = colour("--busy-ground");
        plot.ctx.fillRect(from, top, left + width - from, height);
      };
      const marks = (plot: uPlot) => {
        const now = advice.pool_bytes;
        if (now === null) return;
        const { top, height } = plot.bbox;
        const x = plot.valToPos(now, "x", true);
        plot.ctx.fillStyle = colour("--accent");
        plot.ctx.fillRect(x - 1, top, 2, height);
      };
      const value = (_: uPlot, v: number | null) => (v === null || v === undefined ? "–" : `${v.toFixed(1)}%`);
      const [below, beside] = axes();
      return new uPlot(
        {
          width: node.clientWidth,
          height: HEIGHT,
          scales: { x: { time: false, distr: 3, log: 2 }, y: { range: [0, 100] } },
          axes: [{ ...below, label: "size of the pool", labelSize: 18, values: (_, all) => all.map((v) => (v ? bytes(v) : "")) }, beside],
          series: [
            { label: "size", value: (_, v) => bytes(v) },
            { label: "hits, measured", stroke: colour("--green"), width: 2, points: { show: false }, value },
            { label: "not measured", stroke: colour("--muted"), width: 2, dash: [4, 6], points: { show: false }, value },
          ],
          hooks: { drawClear: [shade], draw: [marks] },
          cursor: { y: false },
        },
        [at, [...hits, null], beyond] as uPlot.AlignedData,
        node,
      );
    };
    return keep(node, HEIGHT, draw);
  }, [advice]);

  if (!last) return null;
  const now = advice.pool_bytes === null ? "" : ` The pool has ${bytes(advice.pool_bytes)} now (upright line).`;
  return (
    <div class="chart" role="img" aria-label={`Hits by size of the pool: ${figure(last.hit_ratio * 100)}% at ${bytes(last.pool_bytes)}, beyond which nothing was measured`}>
      <div class="caption">
        Hits by size of the pool <span class="muted">% of 4 KiB blocks read</span>
      </div>
      <div ref={place} aria-hidden="true" />
      <p class="muted note" id="measured">
        Measured up to {bytes(advice.measured_bytes)}, which is all that was asked for in {span(advice.observed_s)}. Beyond that (dashed,
        on another ground) nothing is known: the line goes on as if the same data were asked for again.{now}
      </p>
    </div>
  );
}

/** What twice the pool would bring. */
function Doubling(props: { advice: Advice }) {
  const { sizes, prices } = props.advice;
  const now = sizes.find((size) => size.label === "now");
  const double = sizes.find((size) => size.label === "double");
  if (!now || !double || now.hit_ratio === null || double.hit_ratio === null) return null;
  const gain = (double.hit_ratio - now.hit_ratio) * 100;
  const mean = `${latency(now.latency_us_mean ?? 0)} to ${latency(double.latency_us_mean ?? 0)}`;
  const cost =
    prices && now.cost !== null && double.cost !== null
      ? ` for ${prices.currency} ${(double.cost - now.cost).toFixed(2)} more over ${prices.years} years`
      : "";
  return (
    <p id="doubling">
      Twice the pool ({bytes(double.pool_bytes)}) would bring <strong>{figure(gain)} points</strong> of hit ratio, and take the mean
      response from {mean}{cost}.{double.measured ? "" : " That size is beyond what was measured."}
    </p>
  );
}

export function AdviceView(props: { advice: Advice }) {
  const { advice } = props;
  const { prices } = advice;
  return (
    <>
      {advice.warnings.length > 0 && (
        <ul class="warnings">
          {advice.warnings.map((warning) => (
            <li key={warning}>{warning}</li>
          ))}
        </ul>
      )}
      <Doubling advice={advice} />
      <Curve advice={advice} />
      <Table
        label="Sizes side by side"
        head={["Pool", "Size", "Hits", "Mean", "99% within", ...(prices ? [`Cost, ${prices.currency}`] : []), ""]}
      >
        {advice.sizes.map((size) => (
          <tr key={size.label}>
            <th scope="row">{size.label}</th>
            <td>{bytes(size.pool_bytes)}</td>
            <td>{size.hit_ratio === null ? "–" : `${figure(size.hit_ratio * 100)}%`}</td>
            <td>{latency(size.latency_us_mean ?? 0)}</td>
            <td>{latency(size.latency_us_p99 ?? 0)}</td>
            {prices && <td>{size.cost === null ? "–" : size.cost.toFixed(2)}</td>}
            <td>{size.measured ? "" : "not measured"}</td>
          </tr>
        ))}
      </Table>
      <p class="muted note">
        {advice.basis}{" "}
        {prices
          ? `Costs over ${prices.years} years by the price book of ${prices.dated}, wear and power included.`
          : "Costs are shown once `hotset web` is given a price book with --prices."}
      </p>
    </>
  );
}
