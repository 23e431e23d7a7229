import { gridOf } from "./http";
import { PathSource, type Request, type Transport } from "./paths";
import { type Grid, hasEnded, type Job, SourceError } from "./source";
import { WaitingTransport } from "./waiting";

/** The part of anywidget's model that carries messages between a notebook's page and its kernel. */
export interface Channel {
  send(content: unknown): void;
  on(event: "msg:custom", heard: (content: unknown, buffers: readonly BufferSource[]) => void): void;
  off(event: "msg:custom", heard: (content: unknown, buffers: readonly BufferSource[]) => void): void;
}

interface Answer {
  id: string;
  status: number;
  result: unknown;
}

interface Question {
  take(answer: Answer, buffers: readonly BufferSource[]): void;
  refuse(error: unknown): void;
}

/** Milliseconds between looks at a job: a notebook has no stream of events. */
const LOOK = 400;

/** Asks the kernel that the widget lives in: the server's paths and answers, without a server. */
export class CommTransport implements Transport {
  readonly kind = "comm" as const;
  private readonly questions = new Map<string, Question>();
  // Two views of one widget hear each other's answers, so a number alone would not do.
  private readonly name = Math.random().toString(36).slice(2);
  private asked = 0;

  constructor(private readonly channel: Channel) {
    channel.on("msg:custom", this.heard);
  }

  dispose(): void {
    this.channel.off("msg:custom", this.heard);
    for (const one of this.questions.values()) one.refuse(new SourceError("The widget was closed.", 0));
    this.questions.clear();
  }

  async json(path: string, request?: Request): Promise<unknown> {
    return (await this.ask(path, request)).answer.result;
  }

  async grid(path: string, request?: Request): Promise<Grid> {
    const { answer, buffers } = await this.ask(path, request);
    const { rows, cols } = answer.result as { rows: number; cols: number };
    return gridOf(copyOf(buffers[0]), rows, cols);
  }

  events(path: string, onEvent: (data: unknown) => void, onLost: (error: SourceError) => void): () => void {
    let stopped = false;
    const look = async (): Promise<void> => {
      while (!stopped) {
        const job = (await this.json(path.replace(/\/events$/, ""))) as Job;
        if (!stopped) onEvent(job);
        if (hasEnded(job)) return;
        await new Promise((resolve) => setTimeout(resolve, LOOK));
      }
    };
    look().catch((error: unknown) => onLost(error instanceof SourceError ? error : new SourceError(String(error), 0)));
    return () => {
      stopped = true;
    };
  }

  private async ask(
    path: string,
    request: Request = {},
  ): Promise<{ answer: Answer; buffers: readonly BufferSource[] }> {
    const found = await this.once(path, request);
    const { status, result } = found.answer;
    if (status < 400) return found;
    const { error, job } = result as { error?: string; job?: string | null };
    throw new SourceError(error ?? `The kernel answered ${status}.`, status, job ?? null);
  }

  private once(
    path: string,
    { method = "GET", body, signal }: Request,
  ): Promise<{ answer: Answer; buffers: readonly BufferSource[] }> {
    const id = `${this.name}-${this.asked++}`;
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason);
      const giveUp = (): void => {
        this.questions.delete(id);
        this.channel.send({ cancel: id });
        reject(signal?.reason);
      };
      signal?.addEventListener("abort", giveUp, { once: true });
      this.questions.set(id, {
        take(answer, buffers) {
          signal?.removeEventListener("abort", giveUp);
          resolve({ answer, buffers });
        },
        refuse: reject,
      });
      this.channel.send({ id, path, method, ...(body === undefined ? {} : { body }) });
    });
  }

  private readonly heard = (content: unknown, buffers: readonly BufferSource[]): void => {
    const answer = content as Answer;
    const one = this.questions.get(answer.id);
    this.questions.delete(answer.id);
    one?.take(answer, buffers);
  };
}

/** The bytes by themselves: a notebook hands out windows into a longer message, at any offset. */
function copyOf(buffer: BufferSource | undefined): ArrayBuffer {
  if (!buffer) throw new SourceError("The kernel sent no numbers.", 0);
  if (buffer instanceof ArrayBuffer) return buffer;
  const view = new Uint8Array(buffer.buffer, buffer.byteOffset, buffer.byteLength);
  return view.slice().buffer;
}

export class CommSource extends PathSource {
  constructor(channel: CommTransport) {
    super(new WaitingTransport(channel));
  }
}
