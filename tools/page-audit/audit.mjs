// audit.mjs ORIGIN TOKEN: Lighthouse, with Debian's Chromium, on the sign-in and the overview of the page at
// ORIGIN, as a desktop on this machine without throttling. Prints the scores; ends with 1 if one is under 95 of
// 100 or the page is not interactive within a second.
import { launch } from "chrome-launcher";
import lighthouse, { desktopConfig } from "lighthouse";

const SCORE_MIN = 0.95;
const INTERACTIVE_MS_MAX = 1000;
const CATEGORIES = ["performance", "accessibility", "best-practices"];

const [origin, token] = process.argv.slice(2);
const answer = await fetch(`${origin}/api/v1/session`, {
  method: "POST",
  headers: { "content-type": "application/json" },
  body: JSON.stringify({ token }),
});
const Cookie = answer.headers.get("set-cookie").split(";")[0];
const chrome = await launch({
  chromePath: process.env.CHROME_PATH ?? "/usr/bin/chromium",
  chromeFlags: ["--headless=new", "--no-sandbox", "--disable-gpu"],
});
let short = false;
for (const [view, extraHeaders] of [["sign-in", {}], ["overview", { Cookie }]]) {
  const flags = {
    port: chrome.port,
    onlyCategories: CATEGORIES,
    throttlingMethod: "provided",
    disableStorageReset: true,
    // The live stream never ends.
    maxWaitForLoad: 15000,
    extraHeaders,
  };
  const { lhr } = await lighthouse(origin, flags, desktopConfig);
  const scores = CATEGORIES.map((name) => [name, lhr.categories[name].score]);
  const interactive = lhr.audits.interactive.numericValue;
  const bytes = lhr.audits["total-byte-weight"].numericValue;
  const shown = scores.map(([name, score]) => `${name} ${Math.round(score * 100)}`).join(", ");
  console.log(`${view}: ${shown}; interactive in ${Math.round(interactive)} ms, ${Math.round(bytes / 1024)} KiB loaded`);
  short ||= scores.some(([, score]) => score < SCORE_MIN) || !(interactive <= INTERACTIVE_MS_MAX);
  for (const name of CATEGORIES) {
    for (const { id, weight } of lhr.categories[name].auditRefs) {
      const audit = lhr.audits[id];
      if (weight > 0 && audit.score !== null && audit.score < 0.9) console.log(`  ${name}: ${audit.title}: ${audit.displayValue ?? ""}`);
    }
  }
}
chrome.kill();
process.exit(short ? 1 : 0);
