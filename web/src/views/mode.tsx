/** How a volume uses its pool: another mode, and the devices of its log. */

import { useSignal } from "@preact/signals";
import { change, segment } from "../api";
import type { Volume } from "../model";
import { Action, Card, Confirmed } from "../parts";
import { bytes } from "../text";
import { body, Field, given, LogFields, NO_LOG, NONE, type Part } from "./log";

const MODES: [string, string][] = [
  ["write-through", "Reads and writes are cached; writes reach the origin before they are answered."],
  ["write-around", "Reads are cached; writes go to the origin alone."],
  ["pass-through", "Nothing is cached; all goes to the origin."],
  ["write-back", "Writes are answered by a log on two blank devices of different controllers, and reach the origin later."],
];

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
  const log = useSignal(NO_LOG);
  const busy = useSignal(false);
  const mode = chosen.value ?? volume.mode;
  const state = volume.write_back;
  const devices = mode === "write-back" ? given(log.value) : { log: [] };
  const ready = mode !== volume.mode && devices.log.length !== 1;
  const apply = async () => {
    busy.value = true;
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
          <LogFields log={log.value} set={(wanted) => (log.value = wanted)} />
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
