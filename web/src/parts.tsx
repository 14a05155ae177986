/** Pieces that several views use. */

import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useRef } from "preact/hooks";
import { change, failure, segment, session } from "./api";
import { away } from "./live";
import type { Problem, Trouble, Volume } from "./model";
import { sentence, span } from "./text";

export function Card(props: { title: string; children: ComponentChildren; actions?: ComponentChildren }) {
  return (
    <section class="card" aria-label={props.title}>
      <header>
        <h2>{props.title}</h2>
        {props.actions}
      </header>
      {props.children}
    </section>
  );
}

/** A button for who may change something. */
export function Action(props: { label: string; danger?: boolean; disabled?: boolean; id?: string; run: () => void }) {
  const allowed = session.value?.role === "operator";
  return (
    <button
      id={props.id}
      type="button"
      class={props.danger ? "danger" : undefined}
      disabled={!allowed || props.disabled || away.value !== null}
      title={allowed ? undefined : "this needs the operator's token"}
      onClick={props.run}
    >
      {props.label}
    </button>
  );
}

/** An action with a dialogue before it that says what follows. */
export function Confirmed(props: { label: string; danger?: boolean; disabled?: boolean; children: ComponentChildren; run: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const close = () => dialog.current?.close();
  return (
    <>
      <Action label={props.label} danger={props.danger} disabled={props.disabled} run={() => dialog.current?.showModal()} />
      <dialog ref={dialog} aria-label={props.label}>
        {props.children}
        <p class="row">
          <button
            type="button"
            class="danger"
            onClick={() => {
              close();
              props.run();
            }}
          >
            {`Yes, ${props.label.toLowerCase()}`}
          </button>
          <button type="button" onClick={close}>
            Leave it as it is
          </button>
        </p>
      </dialog>
    </>
  );
}

/** Text with a button that copies it. */
export function Copied(props: { text: string }) {
  const code = useRef<HTMLElement>(null);
  const done = useSignal("");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(props.text);
      done.value = "Copied";
    } catch {
      // A page that may not copy marks the text, for the user to do it.
      getSelection()?.selectAllChildren(code.current!);
      done.value = "Marked";
    }
  };
  return (
    <p class="row copied">
      <code ref={code}>{props.text}</code>
      <button type="button" aria-label={`Copy ${props.text}`} onClick={copy}>
        Copy
      </button>
      <span role="status">{done.value}</span>
    </p>
  );
}

/** How a volume uses its pool. */
export function standing(volume: Volume): string {
  const mode = volume.off === null ? volume.mode : `off (${volume.off})`;
  return volume.quiesced ? `${mode}, quiesced` : mode;
}

export function State(props: { state: string }) {
  const good = ["online", "healthy", "in sync", "on", "done"].includes(props.state);
  const bad = /^(ejected|failed|inactive|lost|missing|degraded)/.test(props.state);
  return <span class={`state ${good ? "good" : bad ? "bad" : "busy"}`}>{props.state}</span>;
}

/** Text whose commands stand between backquotes. */
function Remedy(props: { text: string }) {
  const parts = props.text.split("`");
  return <>{parts.map((part, at) => (at % 2 === 1 ? <code key={at}>{part}</code> : part))}</>;
}

/** Gives a pool a device of its own back that it has ejected, or that was absent. */
export function PutBack(props: { pool: string; device: string }) {
  const { pool, device } = props;
  const path = `/api/v1/pools/${segment(pool)}/devices/${segment(device)}/readmit`;
  return (
    <Confirmed label="Put back" run={() => change("POST", path)}>
      <p>
        Pool {pool} uses {device} again. One that was only late is used with what it holds; any other is overwritten, and
        filled again. No data are lost.
      </p>
    </Confirmed>
  );
}

/** The command of a remedy that is a button too: the pool, and the device that it takes back. */
const READMIT = /`hotset pool readmit (\S+) (\S+)`/;

/** What is wrong, what it costs, and what mends it. */
export function Troubles(props: { found: Trouble[] }) {
  return (
    <div class="banner bad" role="alert" id="troubles">
      {props.found.map((trouble) => {
        const [, pool, device] = READMIT.exec(trouble.remedy) ?? [];
        return (
          <div key={trouble.kind + trouble.subject}>
            <p>
              <strong>{sentence(`${trouble.subject} ${trouble.what}`)}</strong> Seen for {span(trouble.for_s)};{" "}
              {trouble.cost}. <Remedy text={sentence(trouble.remedy)} />
            </p>
            {pool && device && <PutBack pool={pool} device={device} />}
          </div>
        );
      })}
    </div>
  );
}

/** The refusal of a change. */
export function Refusal(props: { found: Problem; dismiss: () => void }) {
  return (
    <div class="banner bad" role="alert">
      <p>
        <strong>{props.found.detail}</strong>
      </p>
      <p>{props.found.remedy}</p>
      <button type="button" onClick={props.dismiss}>
        Dismiss
      </button>
    </div>
  );
}

export function Failure() {
  return failure.value && <Refusal found={failure.value} dismiss={() => (failure.value = null)} />;
}

/** A table. On a phone each row is a card, in which a cell has the name of its column. */
export function Table(props: { head: string[]; label: string; children: ComponentChildren }) {
  const name = (table: HTMLTableElement | null) => {
    for (const row of table?.tBodies[0]?.rows ?? []) {
      [...row.cells].forEach((cell, column) => cell.setAttribute("data-head", props.head[column] ?? ""));
    }
  };
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={props.label}>
      <table ref={name}>
        <thead>
          <tr>
            {props.head.map((name) => (
              <th scope="col" key={name}>
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>{props.children}</tbody>
      </table>
    </div>
  );
}
