import { MemoryTransport } from "./memory";
import { PathSource, type Request, type Transport } from "./paths";
import { type Grid, SourceError } from "./source";
import { WaitingTransport } from "./waiting";

/** Float32 values as the server sends them: little-endian, row by row, with the shape beside them. */
export function gridOf(buffer: ArrayBuffer, rows: number | null, cols: number | null): Grid {
  const values = new Float32Array(buffer, 0, Math.floor(buffer.byteLength / 4));
  const height = rows ?? 1;
  const width = cols ?? (height > 0 ? values.length / height : 0);
  if (height * width !== values.length) {
    throw new SourceError(`A tile of ${height} × ${width} cells arrived with ${values.length} values.`, 0);
  }
  return { rows: height, cols: width, values };
}

async function errorOf(response: Response): Promise<SourceError> {
  try {
    const { error, detail, job } = (await response.json()) as Record<"error" | "detail" | "job", unknown>;
    const said = [error, detail].find((text) => typeof text === "string");
    if (said) return new SourceError(said, response.status, typeof job === "string" ? job : null);
  } catch {
    // Not JSON: the status line has to do.
  }
  return new SourceError(`The server answered ${response.status} ${response.statusText}.`, response.status);
}

/** Asks regard's own server; `base` is where it lives, the page's own origin unless told otherwise. */
export class HttpTransport implements Transport {
  readonly kind = "http" as const;

  constructor(private readonly base = "") {}

  private async ask(path: string, request: Request = {}): Promise<Response> {
    const { method = "GET", body, raw, signal } = request;
    let response: Response;
    try {
      response = await fetch(this.base + path, {
        method,
        credentials: "same-origin",
        ...(signal ? { signal } : {}),
        ...(raw === undefined ? {} : { body: raw }),
        ...(body === undefined ? {} : { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } }),
      });
    } catch (error) {
      if (signal?.aborted) throw error;
      throw new SourceError("The server does not answer. Is `regard view` still running?", 0);
    }
    if (!response.ok) throw await errorOf(response);
    return response;
  }

  async json(path: string, request?: Request): Promise<unknown> {
    const text = await (await this.ask(path, request)).text();
    return text === "" ? null : JSON.parse(text);
  }

  async grid(path: string, request?: Request): Promise<Grid> {
    const response = await this.ask(path, request);
    const side = (name: string): number | null => {
      const value = response.headers.get(name);
      return value === null ? null : Number(value);
    };
    return gridOf(await response.arrayBuffer(), side("X-Rows"), side("X-Cols"));
  }

  events(path: string, onEvent: (data: unknown) => void, onLost: (error: SourceError) => void): () => void {
    const stream = new EventSource(this.base + path);
    stream.onmessage = (event: MessageEvent<string>) => onEvent(JSON.parse(event.data));
    stream.onerror = () => {
      if (stream.readyState === EventSource.CLOSED) {
        onLost(new SourceError("The server closed the progress stream.", 0));
      }
    };
    return () => stream.close();
  }
}

export class HttpSource extends PathSource {
  constructor(base = "") {
    super(new MemoryTransport(new WaitingTransport(new HttpTransport(base))));
  }
}
