/** Where a token is asked for. */

import { useSignal } from "@preact/signals";
import { Refused, request, session, type Session } from "../api";

export function SignIn() {
  const token = useSignal("");
  const wrong = useSignal("");
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
        <label for="token">Token, as `hotset web` printed it at its first start</label>
        <input
          id="token"
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
