/** Jobs: how far each is, and its end. */

import { change, segment } from "../api";
import type { Job } from "../model";
import { Action, Card, State, Table } from "../parts";
import { figure, span } from "../text";

/** Detachments alone can stop for a while. */
function Pause(props: { job: Job }) {
  const { kind, name, state } = props.job;
  if (kind !== "detach" || (state !== "running" && state !== "paused")) return null;
  const paused = state === "running";
  return (
    <Action
      label={paused ? "Pause" : "Resume"}
      run={() => change("PUT", `/api/v1/jobs/${segment(name)}/paused`, { paused })}
    />
  );
}

function Row(props: { job: Job }) {
  const { job } = props;
  const running = job.state === "running";
  return (
    <tr>
      <th scope="row">{job.name}</th>
      <td>
        <State state={job.state} />
      </td>
      <td>
        {job.percent !== null && running && <progress max={100} value={job.percent} aria-label={`${job.name} done`} />}{" "}
        {job.percent !== null && `${figure(job.percent)}%`}
      </td>
      <td>{job.left_s === null ? "–" : span(job.left_s)}</td>
      <td>{span(job.running_s)}</td>
      <td class="about">{job.about}</td>
      <td>
        <Pause job={job} />{" "}
        {job.can_cancel && (
          <Action label="Cancel" run={() => change("DELETE", `/api/v1/jobs/${segment(job.name)}`)} />
        )}
      </td>
    </tr>
  );
}

export function Jobs(props: { jobs: Job[] }) {
  if (props.jobs.length === 0) return null;
  return (
    <Card title="Jobs">
      <Table label="Jobs that run and have ended" head={["Job", "State", "Done", "Left", "For", "About", ""]}>
        {props.jobs.map((job) => (
          <Row key={job.name} job={job} />
        ))}
      </Table>
    </Card>
  );
}
