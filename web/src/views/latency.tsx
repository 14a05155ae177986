/** How long a volume's clients waited, and how long its devices took. */

import { Chart } from "../chart";
import type { Kind, Observed, Total } from "../model";
import { Table } from "../parts";
import { figure, latency } from "../text";

/** As `docs/openapi.json` gives the bounds of `latency_counts`, in microseconds. */
const BOUNDS_US = [
  50, 100, 250, 500, 1000, 2500, 5000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
  10_000_000,
];

/** Shares of requests by bucket; the last is of those beyond all bounds. */
function shares(total: Total): number[] {
  const within = BOUNDS_US.map((_, i) => total.latency_counts[i] ?? 0);
  const beyond = total.requests - within.reduce((all, n) => all + n, 0);
  return [...within, beyond].map((n) => (total.requests > 0 ? n / total.requests : 0));
}

/** The bound that a share of requests stayed within. */
function within(total: Total, share: number): string {
  let seen = 0;
  const at = shares(total).findIndex((part) => (seen += part) >= share);
  const bound = BOUNDS_US[at];
  return bound === undefined ? `more than ${latency(BOUNDS_US.at(-1)!)}` : `at most ${latency(bound)}`;
}

function Bar(props: { share: number; kind: string }) {
  return (
    <td class="bar">
      <svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">
        <rect class={props.kind} width={props.share * 100} height="10" />
      </svg>
      <span>{props.share > 0 ? `${figure(props.share * 100)}%` : ""}</span>
    </td>
  );
}

/** Buckets of what clients waited, from the first that was used to the last. */
export function Histogram(props: { observed: Observed }) {
  const { read_total: reads, write_total: writes } = props.observed;
  if (reads.requests + writes.requests === 0) return <p class="muted">Nothing was asked for yet.</p>;
  const [of_reads, of_writes] = [shares(reads), shares(writes)];
  const used = of_reads.map((share, i) => share + of_writes[i]! > 0);
  const rows = used.map((_, i) => i).slice(used.indexOf(true), used.lastIndexOf(true) + 1);
  const half = [reads, writes].map((total) => (total.requests > 0 ? [within(total, 0.5), within(total, 0.99)] : null));
  return (
    <>
      {(["reads", "writes"] as const).map((kind, i) =>
        half[i] ? (
          <p key={kind}>
            Half of {figure([reads, writes][i]!.requests, 0)} {kind} took {half[i]![0]}, 99% {half[i]![1]}.
          </p>
        ) : null,
      )}
      <Table label="Latency of clients' requests" head={["Took at most", "Reads", "Writes"]}>
        {rows.map((i) => (
          <tr key={i}>
            <th scope="row">{i < BOUNDS_US.length ? latency(BOUNDS_US[i]!) : "longer"}</th>
            <Bar share={of_reads[i]!} kind="reads" />
            <Bar share={of_writes[i]!} kind="writes" />
          </tr>
        ))}
      </Table>
    </>
  );
}

/** How many of a kind's requests took at most so long. */
export function Percentiles(props: { observed: Observed }) {
  const kinds: [string, string, Kind][] = [
    ["origin", "--red", props.observed.origin.reads],
    ["pool", "--green", props.observed.cache.reads],
  ];
  const shown = kinds.filter(([, , kind]) => kind.latency_us.length > 0);
  if (shown.length === 0) return null;
  const steps = shown[0]![2].latency_us.length;
  const at = Array.from({ length: steps }, (_, i) => ((i + 0.5) / steps) * 100);
  return (
    <Chart
      title="Latency of the devices' reads, by percentile"
      unit="ms"
      plain="percentile"
      at={at}
      lines={shown.map(([label, colour, kind]) => ({ label, colour, values: kind.latency_us.map((us) => us / 1000) }))}
    />
  );
}
