import type { Request, Transport } from "../src/source/paths";
import { type Grid, SourceError } from "../src/source/source";

/** A made-up recording for working on the page without a server: every weight is a formula of its position. */

const WORDS =
  "Alice was beginning to get very tired of sitting by her sister on the bank , and of having nothing to do : once or twice she had peeped into the book".split(
    " ",
  );

export class MockTransport implements Transport {
  readonly kind = "http" as const;
  constructor(
    private readonly n: number,
    private readonly window: number | null = null,
  ) {}

  async json(path: string, request?: Request): Promise<unknown> {
    await new Promise((done) => setTimeout(done, 20));
    const url = new URL(path, "http://mock");
    const number = (name: string): number => Number(url.searchParams.get(name));
    if (request?.method === "POST") throw new SourceError("The mock cannot run models.", 503);
    if (url.pathname === "/api/info") return { version: "mock", models: [], can_run_models: false };
    if (url.pathname === "/api/recordings") return { recordings: [this.entry()], default: "mock" };
    if (url.pathname === "/api/recordings/mock") return this.recording();
    if (url.pathname.endsWith("/tokens")) return this.tokens();
    if (url.pathname.endsWith("/cell")) return this.cell(head(path), number("query"), number("key"));
    if (url.pathname.endsWith("/region")) return region(number("q0"), number("q1"), number("k0"), number("k1"));
    throw new SourceError(`The mock does not know ${path}.`, 404);
  }

  async grid(path: string): Promise<Grid> {
    await new Promise((done) => setTimeout(done, 30));
    const url = new URL(path, "http://mock");
    const number = (name: string): number => Number(url.searchParams.get(name));
    const h = head(path);
    if (url.pathname.endsWith("/tile")) {
      return this.pooled(h, number("level"), number("row"), number("col"), url.searchParams.get("how") ?? "max");
    }
    if (url.pathname.endsWith("/weights")) {
      const heads = url.pathname.includes("/heads/") ? [h] : [0, 1, 2, 3, 4, 5, 6, 7];
      const values = new Float32Array(heads.length * this.n);
      const query = url.searchParams.has("query");
      heads.forEach((each, r) => {
        for (let i = 0; i < this.n; i++) {
          values[r * this.n + i] = query ? this.weight(each, number("query"), i) : this.weight(each, i, number("key"));
        }
      });
      return { rows: heads.length, cols: this.n, values };
    }
    throw new SourceError(`The mock does not know ${path}.`, 404);
  }

  events(): () => void {
    return () => undefined;
  }

  private weight(h: number, q: number, k: number): number {
    const reach = this.window ?? Infinity;
    if (k > q || q - k >= reach) return 0;
    const near = Math.exp(-(q - k) / (2 + 4 * h)) * 0.5;
    const sink = k === 0 ? 0.25 : 0;
    const noise = ((Math.imul(q * 7919 + k * 104729 + h, 2654435761) >>> 0) / 2 ** 32) ** 6;
    const echo = (q - k) % 117 === 116 ? 0.3 : 0;
    return Math.min(1, near + sink + echo + (0.1 * noise) / (1 + (q - k) / 50));
  }

  private pooled(h: number, level: number, row: number, col: number, how: string): Grid {
    const block = 2 ** level;
    const side = Math.ceil(this.n / block);
    const rows = Math.min(256, side - row * 256);
    const cols = Math.min(256, side - col * 256);
    const values = new Float32Array(rows * cols);
    const samples = Math.min(block, 4);
    for (let r = 0; r < rows; r++) {
      for (let c = 0; c < cols; c++) {
        let sum = 0;
        let max = 0;
        for (let a = 0; a < samples; a++) {
          for (let b = 0; b < samples; b++) {
            const q = Math.floor((row * 256 + r + a / samples) * block);
            const k = Math.floor((col * 256 + c + b / samples) * block);
            const w = q < this.n && k < this.n ? this.weight(h, q, k) : 0;
            sum += w;
            max = Math.max(max, w);
          }
        }
        values[r * cols + c] = how === "max" ? max : sum / samples ** 2;
      }
    }
    return { rows, cols, values };
  }

  private cell(h: number, query: number, key: number): unknown {
    const weight = this.weight(h, query, key);
    const score = weight > 0 ? Math.log(weight) + 2 : null;
    return { query, key, weight, score, log_weight: score, rank: 3, visible: weight > 0, distance: query - key };
  }

  private entry(): unknown {
    return { id: "mock", name: "A made-up recording", model: "mock-8x8", tokens: this.n, stacks: ["self"] };
  }

  private recording(): unknown {
    const layers = [0, 1, 2, 3, 4, 5, 6, 7];
    const windows = Object.fromEntries(layers.map((layer) => [layer, this.window]));
    const stack = {
      role: "self",
      layers,
      heads: 8,
      kv_heads: 4,
      queries: this.n,
      keys: this.n,
      windows,
      documents: [0, Math.floor(this.n / 3)],
    };
    return {
      ...(this.entry() as object),
      kind: "decoder",
      tokenizer: null,
      complete: true,
      live: false,
      stacks: [stack],
      levels: 12,
      tile: 256,
    };
  }

  private tokens(): unknown {
    const pieces = Array.from({ length: this.n }, (_, i) => (i % 117 === 116 ? "\n" : ` ${WORDS[i % WORDS.length]}`));
    const starts: number[] = [];
    const stops: number[] = [];
    let at = 0;
    for (const piece of pieces) {
      starts.push(at);
      at += piece.length;
      stops.push(at);
    }
    return { text: pieces.join(""), ids: pieces.map((_, i) => i % 500), starts, stops, pieces };
  }
}

function head(path: string): number {
  return Number(/heads\/(\d+)/.exec(path)?.[1] ?? 0);
}

function region(q0: number, q1: number, k0: number, k1: number): unknown {
  const cells = (q1 - q0) * (k1 - k0);
  return { cells, visible: cells, mass: 1.5, share: 0.1, mean: 0.01, max: 0.5, max_at: [q0, k0], entropy_mean: 2.1 };
}
