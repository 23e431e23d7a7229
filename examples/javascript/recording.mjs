// Reads a recording of regard in JavaScript: no dependencies. docs/format.md describes the files.
//
//   node recording.mjs FOLDER LAYER HEAD QUERY      prints the tokens that a query attends to, heaviest first
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

export const FORMAT = 2;

/** A recording: `layers` by "decoder/5", `tokens` of the first text, the `model`. */
export function open(folder) {
  const manifest = JSON.parse(readFileSync(join(folder, "manifest.json"), "utf8"));
  if (manifest.format > FORMAT) throw new Error(`format ${manifest.format}; this reads up to ${FORMAT}`);
  const said = manifest.tokens ? JSON.parse(checked(folder, manifest.tokens).toString("utf8")) : {};
  const layers = new Map(manifest.layers.map((entry) => [`${entry.site.role}/${entry.site.index}`, layer(folder, entry)]));
  return { model: manifest.model, text: said.text ?? null, tokens: (said.tokens?.[0] ?? []).map(([text]) => text), layers };
}

/** The bytes of a file, if they are those that the manifest vouches for. */
function checked(folder, entry) {
  const bytes = readFileSync(join(folder, entry.file));
  if (createHash("sha256").update(bytes).digest("hex") !== entry.sha256) throw new Error(`${entry.file} is damaged`);
  return bytes;
}

/** Tensors of a safetensors file: the length of a JSON header, the header, then the data. */
export function tensors(bytes) {
  const size = Number(bytes.readBigUInt64LE(0));
  const header = JSON.parse(bytes.toString("utf8", 8, 8 + size));
  const found = {};
  for (const [name, { dtype, shape, data_offsets: [start, stop] }] of Object.entries(header)) {
    if (name === "__metadata__") continue;
    found[name] = { shape, data: numbers(dtype, bytes.subarray(8 + size + start, 8 + size + stop)) };
  }
  return found;
}

function numbers(dtype, bytes) {
  const aligned = Uint8Array.from(bytes).buffer;
  const plain = { F32: Float32Array, F64: Float64Array, I64: BigInt64Array }[dtype];
  if (plain) return new plain(aligned);
  if (dtype === "F16") return Float32Array.from(new Uint16Array(aligned), half);
  // The upper half of a float32.
  if (dtype === "BF16") return new Float32Array(Uint32Array.from(new Uint16Array(aligned), (bits) => bits << 16).buffer);
  if (dtype === "F8_E4M3") return Float32Array.from(bytes, eighth);
  throw new Error(`${dtype} is not read here`);
}

/** The number in 16 bits: 1 of sign, 5 of exponent, 10 of fraction. */
function half(bits) {
  const [exponent, part] = [(bits >> 10) & 31, (bits & 1023) / 1024];
  const size = exponent === 31 ? (part ? NaN : Infinity) : exponent ? 2 ** (exponent - 15) * (1 + part) : 2 ** -14 * part;
  return bits >> 15 ? -size : size;
}

/** A float of 8 bits: a sign, four bits of exponent, three of fraction. */
function eighth(bits) {
  const exponent = (bits >> 3) & 15, fraction = bits & 7;
  const size = exponent ? (1 + fraction / 8) * 2 ** (exponent - 7) : (fraction / 8) * 2 ** -6;
  return (bits & 127) === 127 ? NaN : bits & 128 ? -size : size;
}

/** Rounded numbers, each head multiplied by its own power of two. */
function restored({ shape, data }, scale) {
  if (!scale) return { shape, data };
  const each = data.length / scale.data.length;
  return { shape, data: data.map((x, i) => x * scale.data[Math.floor(i / each)]) };
}

/** Whether a query may attend to a key, by their positions. */
function allows(mask, query, key) {
  switch (mask?.type) {
    case undefined: return true;
    case "Causal": return key <= query + mask.shift;
    case "Window": return query - key < mask.left && key - query < mask.right;
    case "And": return mask.parts.every((part) => allows(part, query, key));
    case "Or": return mask.parts.some((part) => allows(part, query, key));
    default: throw new Error(`the mask ${mask.type} is not read here`);
  }
}

function layer(folder, entry) {
  if (entry.segments.length !== 1) throw new Error("a recording with generated tokens is not read here");
  const { q: narrow, k: thin, lse, bias, ...rest } = tensors(checked(folder, entry.segments[0]));
  const [q, k] = [restored(narrow, rest["q.scale"]), restored(thin, rest["k.scale"])];
  if (bias) throw new Error("a recording with a bias is not read here");
  if (typeof entry.mask === "string") throw new Error(`the mask was not written: ${entry.mask}`);
  const [, heads, queries, dim] = q.shape;
  const [, shared, keys] = k.shape;
  const stats = Object.fromEntries(Object.entries(rest).filter(([name]) => name.startsWith("stats.")));

  /** One weight of the first text: exp(score - lse). */
  function weight(head, query, key) {
    // The last query sits on the last key.
    if (!allows(entry.mask, query + keys - queries, key)) return 0;
    const row = (head * queries + query) * dim;
    const column = (Math.floor(head / (heads / shared)) * keys + key) * dim;
    let score = 0;
    for (let i = 0; i < dim; i++) score += q.data[row + i] * k.data[column + i];
    score *= entry.scale;
    if (entry.softcap) score = entry.softcap * Math.tanh(score / entry.softcap);
    return Math.exp(score - lse.data[head * queries + query]);
  }

  const row = (head, query) => Array.from({ length: keys }, (_, key) => weight(head, query, key));
  return { heads, queries, keys, stats, weight, row };
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) {
  const [folder, index, head, query] = [process.argv[2], ...process.argv.slice(3).map(Number)];
  const { layers, tokens } = open(folder);
  const found = layers.get(`decoder/${index}`);
  if (!found) throw new Error(`there is no layer decoder/${index}; there are ${[...layers.keys()].join(", ")}`);
  const row = found.row(head, query);
  const order = row.map((_, key) => key).sort((a, b) => row[b] - row[a]).slice(0, 5);
  for (const key of order) console.log(`${row[key].toFixed(4)}  ${key}  ${JSON.stringify(tokens[key] ?? "")}`);
}
