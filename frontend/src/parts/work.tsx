/** What the server is working on for this page, and what waits for its turn, each with an end; or that it is gone. */

import { useEffect, useRef, useState } from "preact/hooks";
import { type Job, type Source, SourceError } from "../source/source";
import { closeOutside } from "./menu";
import { Progress } from "./progress";

const DOING: Record<string, string> = {
  record: "Recording",
  book: "Reading the book",
  generate: "Writing",
  pyramid: "Overview",
  atlas: "Atlas",
  knockout: "Blocking",
};
/** Milliseconds between looks: while there is work, and while there is none. */
const [OFTEN, SELDOM] = [700, 4000];

export function jobLabel({ kind, title, state }: Pick<Job, "kind" | "title" | "state">): string {
  const what = `${DOING[kind] ?? kind}${title ? `: ${title}` : ""}`;
  return state === "waiting" ? `${what} (waits for its turn)` : what;
}

/** Whether the server is gone, or is only starting. */
function isAway(error: unknown): boolean {
  return error instanceof SourceError && [0, 503].includes(error.status);
}

/** `onBack`: the server did not answer for a while, and does again. */
export function Work({ source, onBack }: { source: Source; onBack(): void }) {
  const menu = useRef<HTMLDetailsElement>(null);
  const [jobs, setJobs] = useState<readonly Job[]>([]);
  const [away, setAway] = useState(false);
  const back = useRef(onBack);
  back.current = onBack;
  useEffect(() => closeOutside(menu), []);
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let current = true;
    let gone = false;
    const ask = async (): Promise<readonly Job[]> => {
      try {
        const found = await source.jobs();
        if (gone && current) back.current();
        gone = false;
        return found;
      } catch (error) {
        gone = isAway(error);
        return [];
      }
    };
    const look = async (): Promise<void> => {
      // A page that nobody sees asks for nothing.
      const found = document.visibilityState === "visible" ? await ask() : [];
      if (!current) return;
      setAway(gone);
      setJobs((before) => (before.length === 0 && found.length === 0 ? before : found));
      timer = setTimeout(() => void look(), found.length > 0 || gone ? OFTEN : SELDOM);
    };
    timer = setTimeout(() => void look(), OFTEN);
    return () => {
      current = false;
      clearTimeout(timer);
    };
  }, [source]);
  if (away)
    return (
      <span class="app-note" role="status" data-testid="away">
        No server: waiting for it
      </span>
    );
  return (
    <details class="menu work" ref={menu} hidden={jobs.length === 0} data-testid="work">
      <summary>
        Work <span aria-live="polite">({jobs.length})</span>
      </summary>
      <div class="menu-sheet" role="group" aria-label="Work under way">
        {jobs.map((job) => (
          <div key={job.id} data-testid="job" data-state={job.state}>
            <Progress
              label={jobLabel(job)}
              done={job.done}
              total={job.state === "waiting" ? null : job.total}
              secondsLeft={job.seconds_left}
              waited={job.state === "waiting" ? job.seconds : undefined}
              onCancel={() => void source.cancelJob(job.id).catch(() => undefined)}
            />
          </div>
        ))}
      </div>
    </details>
  );
}
