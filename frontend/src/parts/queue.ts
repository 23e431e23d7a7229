/** So many pieces of work at once, the others in turn; one that was taken back never begins. */
export class Queue {
  private running = 0;
  private readonly rest: (() => void)[] = [];

  constructor(private readonly atOnce: number) {}

  async add<T>(work: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    if (this.running >= this.atOnce) await new Promise<void>((begin) => this.rest.push(begin));
    else this.running++;
    try {
      signal?.throwIfAborted();
      return await work();
    } finally {
      // Whoever is next takes this place over.
      const next = this.rest.shift();
      if (next) next();
      else this.running--;
    }
  }
}
