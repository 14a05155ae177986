// main.mjs SPECIFICATION ORIGIN TOKEN FILES WORK: generates a client of a specification into the folder
// WORK, and walks every operation with it against the server at ORIGIN. FILES is a JSON object of the
// places that the walk may overwrite, and a prefix for names. Ends with 1 and says what is wrong: a specification that is none,
// an answer that is not as specified, or an operation that was not walked.
import { createClient } from "@hey-api/openapi-ts";
import { Validator } from "@seriousme/openapi-schema-validator";
import { Ajv2020 } from "ajv/dist/2020.js";
import { spawnSync } from "node:child_process";
import { copyFileSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const [specification, origin, token, files, work] = process.argv.slice(2);
const here = import.meta.dirname;

function end(text) {
  console.error(text);
  process.exit(1);
}

const { valid, errors } = await new Validator().validate(specification);
if (!valid) end(`${specification} is no OpenAPI: ${JSON.stringify(errors, null, 1)}`);
const spec = JSON.parse(readFileSync(specification, "utf8"));

await createClient({
  input: specification,
  output: { path: join(work, "client"), importFileExtension: ".js" },
  plugins: ["@hey-api/client-fetch", "@hey-api/sdk", "@hey-api/typescript"],
  logs: { level: "silent" },
});
copyFileSync(join(here, "walk.ts"), join(work, "walk.ts"));
writeFileSync(join(work, "package.json"), '{"type":"module"}');
const options = ["--target", "es2022", "--module", "nodenext", "--strict", "--skipLibCheck"];
const compiled = spawnSync(
  join(here, "node_modules/.bin/tsc"),
  [...options, "--lib", "es2022,dom,dom.iterable", "--outDir", join(work, "js"), join(work, "walk.ts")],
  { encoding: "utf8" },
);
if (compiled.status !== 0) end(`the client does not compile:\n${compiled.stdout}`);

const ajv = new Ajv2020({ strict: false, validateFormats: false });
ajv.addSchema(spec, "spec");
const walked = new Set();

/** Notes an answer, which must be as specified. */
async function check(method, path, response) {
  const operation = spec.paths[path]?.[method.toLowerCase()];
  if (!operation) end(`${method} ${path} is not in the specification`);
  const status = response.ok ? `${response.status}` : "default";
  if (!operation.responses[status]) {
    end(`${method} ${path}: answered ${response.status}: ${await response.text()}`);
  }
  walked.add(`${method} ${path}`);
  const kinds = Object.keys(operation.responses[status].content ?? {});
  if (kinds.length === 0) return;
  const kind = response.headers.get("content-type");
  if (!kinds.includes(kind)) end(`${method} ${path}: ${kind}, not ${kinds}`);
  if (kind !== "application/json") return;
  const at = (part) => part.replaceAll("~", "~0").replaceAll("/", "~1");
  const place = ["paths", path, method.toLowerCase(), "responses", status, "content", kind, "schema"];
  const fits = ajv.getSchema(`spec#/${place.map(at).map(encodeURIComponent).join("/")}`);
  if (!fits(await response.json())) end(`${method} ${path}: ${JSON.stringify(fits.errors)}`);
}

const { walk } = await import(join(work, "js/walk.js"));
await walk(origin, token, JSON.parse(files), check);

const all = Object.entries(spec.paths).flatMap(([path, item]) =>
  Object.keys(item).map((method) => `${method.toUpperCase()} ${path}`),
);
const missing = all.filter((operation) => !walked.has(operation));
if (missing.length > 0) end(`not walked: ${missing.join(", ")}`);
console.log(`walked ${walked.size} operations`);
