/** How a volume uses its pool: another mode, and the devices of its log. */

import { useSignal } from "@preact/signals";
import { change, segment } from "../api";
import type { Volume } from "../model";
import { Action, Card, Confirmed } from "../parts";
import { bytes, plain } from "../text";

const MODES: [string, string][] = [
  ["write-through", "Reads and writes are cached; writes reach the origin before they are answered."],
  ["write-around", "Reads are cached; writes go to the origin alone."],
  ["pass-through", "Nothing is cached; all goes to the origin."],
  ["write-back", "Writes are answered by a log on two blank devices of different controllers, and reach the origin later."],
];

interface Part {
  device: string;
  controller: string;
}

/** A device of the configuration by name, or a new one by its path. */
function body(part: Part) {
  const text = part.device.trim();
  if (!text.includes("/")) return { name: text };
  return { name: plain(text), path: text, controller: part.controller.trim() || undefined };
}

function Field(props: { label: string; part: Part; set: (part: Part) => void }) {
  const { part } = props;
  return (
    <p class="row">
      <label>
        {props.label}{" "}
        <input
          placeholder="name or /path"
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

const NONE: Part = { device: "", controller: "" };

/** Another device in the place of one of the log, or of the journal. */
function ReplaceLog(props: { volume: Volume; devices: string[] }) {
  const { volume, devices } = props;
  const chosen = useSignal("");
  const by = useSignal<Part>(NONE);
  const busy = useSignal(false);
  const old = devices.includes(chosen.value) ? chosen.value : devices[0]!;
  const replace = async () => {
    busy.value = true;
    const path = `/api/v1/volumes/${segment(volume.name)}/log/${segment(old)}`;
    const done = await change("PUT", path, { device: body(by.value) });
    busy.value = false;
    if (done) by.value = NONE;
  };
  return (
    <fieldset id="replace-log">
      <legend>Replace a device of the log</legend>
      <p class="row">
        <label>
          Device{" "}
          <select value={old} onChange={(e) => (chosen.value = e.currentTarget.value)}>
            {devices.map((device) => (
              <option key={device}>{device}</option>
            ))}
          </select>
        </label>
      </p>
      <Field label="by, which has to be blank" part={by.value} set={(part) => (by.value = part)} />
      <Confirmed
        label={busy.value ? "Replacing…" : "Replace"}
        danger
        disabled={busy.value || by.value.device.trim() === ""}
        run={replace}
      >
        <p>
          {volume.origin} gets first what it lacks, with clients served, and the log begins again with{" "}
          {by.value.device.trim()}. {old} is blanked if it answers.
        </p>
      </Confirmed>
    </fieldset>
  );
}

export function ModeCard(props: { volume: Volume }) {
  const { volume } = props;
  const chosen = useSignal<string | null>(null);
  const log = useSignal<[Part, Part]>([NONE, NONE]);
  const journal = useSignal<Part>(NONE);
  const busy = useSignal(false);
  const mode = chosen.value ?? volume.mode;
  const state = volume.write_back;
  const given = log.value.filter((part) => part.device.trim() !== "");
  const has = mode === "write-back" && given.length > 0;
  const ready = mode !== volume.mode && !(has && given.length < 2);
  const apply = async () => {
    busy.value = true;
    const devices = has ? { log: given.map(body), journal: journal.value.device.trim() ? body(journal.value) : undefined } : {};
    const done = await change("PUT", `/api/v1/volumes/${segment(volume.name)}/mode`, { mode, ...devices });
    busy.value = false;
    if (done) chosen.value = null;
  };
  return (
    <Card title="Mode">
      <div class="choices">
        {MODES.map(([value, meaning]) => (
          <label class="choice" key={value}>
            <input type="radio" name="mode" checked={mode === value} onChange={() => (chosen.value = value)} />
            <span>
              <strong>{value}</strong>
              <br />
              {meaning}
            </span>
          </label>
        ))}
      </div>
      {mode === "write-back" && volume.mode !== "write-back" && (
        <>
          <p class="muted">Leave these empty if the configuration has devices for the log of {volume.name} already.</p>
          <Field label="Log" part={log.value[0]} set={(part) => (log.value = [part, log.value[1]])} />
          <Field label="Its copy" part={log.value[1]} set={(part) => (log.value = [log.value[0], part])} />
          <Field label="Journal, if it is to have one" part={journal.value} set={(part) => (journal.value = part)} />
        </>
      )}
      {state && mode !== "write-back" && (
        <p class="muted">
          {volume.origin} gets the {bytes(state.dirty_bytes)} first that it lacks; the job is listed under Pools, and can be
          cancelled there.
        </p>
      )}
      <Action id="set-mode" label={busy.value ? "Working…" : "Set the mode"} disabled={!ready || busy.value} run={apply} />
      {state && <ReplaceLog volume={volume} devices={state.devices} />}
    </Card>
  );
}
