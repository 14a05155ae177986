/** Every operation of the API once or more, by the client that was generated from its specification. */

import { client } from "./client/client.gen.js";
import * as api from "./client/sdk.gen.js";

/** Places that the walk may overwrite, and what the names of its devices begin with. */
interface Files {
  prefix: string;
  origin: string;
  ssd: string;
  second: string;
  member: string;
}

type Check = (method: string, path: string, response: Response) => Promise<void>;

/** Repeats a change that the array refuses while it is still busy with the one before. */
async function settled<T>(what: () => Promise<T>): Promise<T> {
  let first: unknown;
  for (const end = Date.now() + 240_000; ; ) {
    try {
      return await what();
    } catch (error) {
      first ??= error;
      if (Date.now() > end) throw new Error(JSON.stringify([first, error]));
      await new Promise((done) => setTimeout(done, 100));
    }
  }
}

export async function walk(origin: string, token: string, files: Files, check: Check): Promise<void> {
  client.setConfig({ baseUrl: origin, auth: () => token, throwOnError: true });
  const seen = async (method: string, path: string, response: Response) => check(method, path, response.clone());
  client.interceptors.response.use(async (response, request, options) => {
    // What is refused is thrown, with what it says, unless that is what is walked.
    if (response.ok || options.throwOnError === false) await seen(request.method, options.url, response);
    return response;
  });

  const { data: session, response } = await api.signIn<true>({ body: { token }, auth: undefined });
  const headers = { cookie: response.headers.get("set-cookie")!.split(";")[0]!, "x-csrf-token": session.csrf };
  await api.shown<true>({ headers, auth: undefined });
  await api.signOut<true>({ headers, auth: undefined });

  const { data: status } = await api.status<true>();
  await api.events<true>();
  const { data: history } = await api.history_<true>({ query: { from: 0, volume: status.volumes[0]!.name } });
  if (history.step_s % 300 !== 0) throw new Error("a month is not kept at five minutes");
  await api.places<true>();
  const { stream } = await api.live({
    fetch: async (request: RequestInfo | URL, init?: RequestInit) => {
      const response = await fetch(request, init);
      await seen("GET", "/api/v1/live", response);
      return response;
    },
  });
  for await (const _ of stream) break;

  const used = { path: { volume: status.volumes[0]!.name } };
  await api.observe<true>(used);
  await api.advise<true>(used);
  await api.record<true>({ ...used, body: { seconds: 0.2 } });
  await api.explain<true>({ ...used, query: { start: 0, end: 65536 } });
  const pool = status.pools[0]!.name;
  await api.add<true>({ body: { name: "walked", origin: { name: "walked", path: files.origin }, pool, read_only: false } });
  const volume = { path: { volume: "walked" } };
  await api.setMode<true>({ ...volume, body: { mode: "write-around" } });
  await api.setOff<true>({ ...volume, body: { off: true } });
  await api.setOff<true>({ ...volume, body: { off: false } });
  await api.setQuiesced<true>({ ...volume, body: { quiesced: true } });
  await api.setQuiesced<true>({ ...volume, body: { quiesced: false } });
  await api.invalidate<true>(volume);
  // Its origin has not grown.
  const grown = await api.grow<false>({ ...volume, throwOnError: false });
  if (grown.response?.status !== 409) throw new Error("a volume grew without its origin");
  // It is not write-back, and has no log.
  const replaced = await api.replaceLog<false>({
    path: { ...volume.path, device: "walked" },
    body: { device: { name: "walked-log", path: files.ssd } },
    throwOnError: false,
  });
  if (replaced.response?.status !== 409) throw new Error("the log of a volume without one was replaced");
  await api.remove<true>(volume);

  await api.addDevice<true>({ path: { pool }, body: { name: "walked-ssd", path: files.ssd } });
  // It serves, and was not ejected.
  const readmitted = await api.readmitDevice<false>({ path: { pool, device: "walked-ssd" }, throwOnError: false });
  if (readmitted.response?.status !== 409) throw new Error("a device that serves was put back");
  await api.removeDevice<true>({ path: { pool, device: "walked-ssd" } });
  await api.addPool<true>({ body: { name: "walked", devices: [{ name: "walked-second", path: files.second }] } });
  await api.removePool<true>({ path: { pool: "walked" } });
  const setUp = {
    volume: { name: "walked-both", origin: { name: "walked", path: files.origin }, pool: "walked", read_only: false },
    pool: { name: "walked", devices: [{ name: "walked-second", path: files.second }] },
  };
  const { data: preview } = await api.preview<true>({ body: setUp });
  if (!preview.new.some((line) => line.includes("walked-both"))) throw new Error(JSON.stringify(preview));
  await api.setUp<true>({ body: setUp });
  await api.remove<true>({ path: { volume: "walked-both" } });
  await api.removePool<true>({ path: { pool: "walked" } });

  const array = status.arrays![0]!.name;
  const device = status.arrays![0]!.members[1]!.device!;
  await api.failMember<true>({ path: { array, member: device } });
  await settled(() => api.addMember<true>({ path: { array }, body: { device: { name: device }, overwrite: true } }));
  const put = (member: string, by: { name: string; path?: string }) =>
    settled(() => api.replaceMember<true>({ path: { array, member }, body: { device: by, overwrite: true } }));
  await put(device, { name: `${files.prefix}-member`, path: files.member });
  await api.jobs<true>();
  // One that has ended before it could be cancelled is begun again.
  await settled(async () => {
    await api.scrub<true>({ path: { array }, body: { repair: false } });
    await api.cancel<true>({ path: { job: `scrub:${array}` } });
  });
  // Only a volume that gives up a log pauses, and there is none.
  const paused = await api.setPaused<false>({
    path: { job: `scrub:${array}` },
    body: { paused: true },
    throwOnError: false,
  });
  if (paused.response?.status !== 409) throw new Error("a scrub was paused");
  // As it was, for who walks next.
  await put(`${files.prefix}-member`, { name: device });
}
