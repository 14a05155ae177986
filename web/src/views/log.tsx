/** The devices of a write-back volume's log, as a form has them. */

import { plain } from "../text";

export interface Part {
  device: string;
  controller: string;
}

export interface Log {
  first: Part;
  second: Part;
  journal: Part;
}

export const NONE: Part = { device: "", controller: "" };
export const NO_LOG: Log = { first: NONE, second: NONE, journal: NONE };

/** A device of the configuration by name, or a new one by its path. */
export function body(part: Part) {
  const text = part.device.trim();
  if (!text.includes("/")) return { name: text };
  return { name: plain(text), path: text, controller: part.controller.trim() || undefined };
}

/** The devices that are given, as a request has them. */
export function given(log: Log) {
  const has = (part: Part) => part.device.trim() !== "";
  return { log: [log.first, log.second].filter(has).map(body), journal: has(log.journal) ? body(log.journal) : undefined };
}

/** A device of a log; `log-places` are those to choose from, where a view has them. */
export function Field(props: { label: string; part: Part; set: (part: Part) => void }) {
  const { part } = props;
  return (
    <p class="row">
      <label>
        {props.label}{" "}
        <input
          size={36}
          placeholder="name or /path"
          list="log-places"
          value={part.device}
          onInput={(e) => props.set({ ...part, device: e.currentTarget.value })}
        />
      </label>
      {part.device.includes("/") && (
        <label>
          fails with{" "}
          <input
            placeholder="controller"
            value={part.controller}
            onInput={(e) => props.set({ ...part, controller: e.currentTarget.value })}
          />
        </label>
      )}
    </p>
  );
}

export function LogFields(props: { log: Log; set: (log: Log) => void }) {
  const { log, set } = props;
  return (
    <>
      <Field label="Log" part={log.first} set={(first) => set({ ...log, first })} />
      <Field label="Its copy" part={log.second} set={(second) => set({ ...log, second })} />
      <Field label="Journal, if it is to have one" part={log.journal} set={(journal) => set({ ...log, journal })} />
    </>
  );
}
