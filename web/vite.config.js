// Builds the page into dist/, under fixed names, and notes in built.sha256 what it was built of:
// a test of the crate `web` compares that with the sources, so that it needs no Node.
import { createHash } from "node:crypto";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { defineConfig } from "vite";

const root = import.meta.dirname;

function sources() {
  const below = ["src", "public"]
    .flatMap((folder) => readdirSync(join(root, folder), { recursive: true, withFileTypes: true }))
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name).slice(root.length + 1));
  const others = ["index.html", "package-lock.json", "package.json", "tsconfig.json", "vite.config.js"];
  return [...below, ...others].sort();
}

const note = {
  name: "note-sources",
  closeBundle() {
    const hash = createHash("sha256");
    for (const file of sources()) {
      hash.update(file).update("\0").update(readFileSync(join(root, file))).update("\0");
    }
    writeFileSync(join(root, "built.sha256"), hash.digest("hex") + "\n");
  },
};

export default defineConfig({
  root,
  plugins: [note],
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    target: "es2022",
    modulePreload: { polyfill: false },
    rollupOptions: {
      output: {
        entryFileNames: "assets/page.js",
        chunkFileNames: "assets/[name].js",
        assetFileNames: "assets/[name][extname]",
      },
    },
  },
});
