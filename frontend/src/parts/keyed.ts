import { signal } from "@preact/signals";

/** The answer to one question: asked about anything else, it is not there. */
export class Keyed<T> {
  private readonly kept = signal<{ key: string; value: T } | null>(null);

  get(key: string | null): T | null {
    const kept = this.kept.value;
    return kept !== null && kept.key === key ? kept.value : null;
  }

  set(key: string, value: T): void {
    this.kept.value = { key, value };
  }

  clear(): void {
    this.kept.value = null;
  }
}

/** One name for a question: of recordings, heads and cells. */
export function keyOf(...parts: readonly unknown[]): string {
  return JSON.stringify(parts);
}
