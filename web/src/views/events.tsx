/** What happened, and since when. */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { request } from "../api";
import type { Event } from "../model";
import { Card, Table } from "../parts";
import { count } from "../text";

const REFRESH_MS = 2000;
const RECENT = 5;

export function useEvents() {
  const events = useSignal<Event[] | null>(null);
  useEffect(() => {
    const load = () =>
      request<Event[]>("GET", "/api/v1/events")
        .then((all) => (events.value = all.reverse()))
        .catch(() => undefined);
    void load();
    const timer = setInterval(load, REFRESH_MS);
    return () => clearInterval(timer);
  }, []);
  return events.value;
}

function Rows(props: { events: Event[] }) {
  return (
    <Table label="Events" head={["When", "What", "Event"]}>
      {props.events.map((event, i) => (
        <tr key={i} class={event.severity}>
          <td>{new Date(event.at * 1000).toLocaleString()}</td>
          <th scope="row">{event.subject}</th>
          <td>{event.text}</td>
        </tr>
      ))}
    </Table>
  );
}

/** The last events, for the overview. */
export function Recent() {
  const events = useEvents();
  return (
    <Card title="What changed last" actions={<a href="#/events">All events</a>}>
      {events?.length ? <Rows events={events.slice(0, RECENT)} /> : <p class="muted">Nothing yet.</p>}
    </Card>
  );
}

export function Events() {
  const filter = useSignal("");
  const onlyBad = useSignal(false);
  const events = useEvents() ?? [];
  const text = filter.value.toLowerCase();
  const wanted = events.filter(
    (event) =>
      (!onlyBad.value || event.severity === "bad") && `${event.subject} ${event.text}`.toLowerCase().includes(text),
  );
  return (
    <>
      <h1>Events</h1>
      <p class="row">
        <label>
          Filter <input type="search" value={filter.value} onInput={(e) => (filter.value = e.currentTarget.value)} />
        </label>
        <label>
          <input type="checkbox" checked={onlyBad.value} onChange={() => (onlyBad.value = !onlyBad.value)} /> Trouble alone
        </label>
      </p>
      <Card title={count(wanted.length, "event")}>
        <Rows events={wanted} />
      </Card>
    </>
  );
}
