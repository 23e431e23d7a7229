/** Prints what the page and the notebook's widget weigh as they travel, and fails the build where one is too heavy. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const LIMIT = 500 * 1000;
const folder = process.env.REGARD_STATIC ?? fileURLToPath(new URL("../../src/regard/viewer/static/", import.meta.url));
const totals = { page: 0, widget: 0 };
for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
  if (!entry.isFile() || !/\.(js|css|html)$/.test(entry.name)) continue;
  const bundle = entry.name.startsWith("widget.") ? "widget" : "page";
  totals[bundle] += gzipSync(readFileSync(join(entry.parentPath, entry.name))).length;
}
for (const [name, total] of Object.entries(totals)) {
  console.log(`The ${name} weighs ${(total / 1000).toFixed(1)} kB gzipped (limit ${LIMIT / 1000} kB).`);
  if (total > LIMIT) process.exitCode = 1;
}
