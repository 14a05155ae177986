/** The page: one view at a time, named by what follows the `#` of its address. */

import { signal } from "@preact/signals";
import { render } from "preact";
import { useEffect } from "preact/hooks";
import { failure, request, resume, session } from "./api";
import { away, connect, disconnect, seen, status } from "./live";
import { Failure } from "./parts";
import "./style.css";
import { sentence } from "./text";
import { Events } from "./views/events";
import { Overview } from "./views/overview";
import { Pools } from "./views/pools";
import { Setup } from "./views/setup";
import { SignIn } from "./views/signin";
import { VolumeView } from "./views/volume";

const address = signal(location.hash || "#/");
addEventListener("hashchange", () => {
  address.value = location.hash || "#/";
  failure.value = null;
});

const LINKS: [string, string][] = [
  ["#/", "Overview"],
  ["#/setup", "Set up"],
  ["#/pools", "Pools"],
  ["#/events", "Events"],
];

function View() {
  const [, view, name] = address.value.split("/");
  if (view === "setup") return <Setup />;
  if (view === "pools") return <Pools />;
  if (view === "events") return <Events />;
  if (view === "volume" && name) return <VolumeView key={name} name={decodeURIComponent(name)} />;
  return <Overview />;
}

async function signOut() {
  await request("DELETE", "/api/v1/session").catch(() => undefined);
  session.value = null;
}

function Page() {
  const signedIn = session.value;
  useEffect(() => {
    if (signedIn) connect();
    else disconnect();
  }, [signedIn]);
  const troubles = signedIn ? (status.value?.troubles.length ?? 0) : 0;
  useEffect(() => {
    document.title = `${troubles > 0 ? `(${troubles}) ` : ""}hotset on ${location.hostname}`;
  }, [troubles]);
  if (signedIn === undefined) return <p class="muted">Loading…</p>;
  if (signedIn === null) return <SignIn />;
  const problem = away.value;
  return (
    <>
      <nav aria-label="Views">
        <strong>hotset</strong>
        {LINKS.map(([href, label]) => (
          <a key={href} href={href} aria-current={address.value === href ? "page" : undefined}>
            {label}
          </a>
        ))}
        <button type="button" class="quiet" onClick={signOut}>
          Sign out
        </button>
      </nav>
      <main>
        {problem && (
          <div class="banner bad" role="alert">
            <p>
              <strong>{sentence(problem.detail)}</strong> {sentence(problem.remedy)}
              {seen.value && ` What is shown is as of ${seen.value.toLocaleTimeString("en-GB")}.`}
            </p>
          </div>
        )}
        <Failure />
        <div class={problem ? "stale" : undefined}>
          <View />
        </div>
      </main>
    </>
  );
}

void resume();
render(<Page />, document.getElementById("page")!);
