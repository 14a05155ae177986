/** Requests to the API, and the session that they belong to. */

import { signal } from "@preact/signals";
import type { Problem } from "./model";

export interface Session {
  role: "operator" | "read-only";
  csrf: string;
}

/** The session; null once it is known that there is none, undefined before. */
export const session = signal<Session | null | undefined>(undefined);

/** What the last change that failed said. */
export const failure = signal<Problem | null>(null);

export class Refused extends Error {
  constructor(readonly problem: Problem) {
    super(problem.detail);
  }
}

export async function request<T>(method: string, path: string, body?: unknown): Promise<T> {
  const headers: Record<string, string> = {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (session.value) headers["X-CSRF-Token"] = session.value.csrf;
  let answer: Response;
  try {
    answer = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch {
    throw new Refused({
      status: 0,
      title: "No answer",
      detail: "the web server does not answer",
      remedy: "see whether `hotset web` still runs",
    });
  }
  if (answer.ok) return (answer.status === 204 ? undefined : await answer.json()) as T;
  if (answer.status === 401 && session.value) session.value = null;
  throw new Refused((await answer.json()) as Problem);
}

/** Has a change carried out; whether it was. What was refused is shown on the page. */
export async function change(method: string, path: string, body?: unknown): Promise<boolean> {
  try {
    await request(method, path, body);
    failure.value = null;
    return true;
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    failure.value = error.problem;
    return false;
  }
}

export async function resume(): Promise<void> {
  const found = await request<Session | undefined>("GET", "/api/v1/session").catch(() => null);
  session.value = found ?? null;
}

export const segment = encodeURIComponent;
