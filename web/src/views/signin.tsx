/** Where a token is asked for. */

import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { Refused, request, session, type Session } from "../api";

export function SignIn() {
  const token = useSignal("");
  const wrong = useSignal("");
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => field.current?.focus(), []);
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    try {
      session.value = await request<Session>("POST", "/api/v1/session", { token: token.value.trim() });
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      wrong.value = `${error.problem.detail}; ${error.problem.remedy}`;
    }
  };
  return (
    <main class="signin">
      <h1>hotset</h1>
      <form onSubmit={submit}>
        <input type="text" autocomplete="username" value="hotset" hidden readOnly />
        <label for="token">
          Token, as <code>hotset web</code> printed it at its first start
        </label>
        <input
          id="token"
          ref={field}
          aria-invalid={wrong.value !== ""}
          type="password"
          autocomplete="current-password"
          required
          value={token.value}
          onInput={(e) => (token.value = e.currentTarget.value)}
        />
        {wrong.value && <p role="alert">{wrong.value}</p>}
        <button type="submit">Sign in</button>
      </form>
    </main>
  );
}
