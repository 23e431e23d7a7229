/** What the server is working on for this page, and what waits for its turn; each with an end. */

import { useEffect, useRef, useState } from "preact/hooks";
import type { Job, Source } from "../source/source";
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

export function Work({ source }: { source: Source }) {
  const menu = useRef<HTMLDetailsElement>(null);
  const [jobs, setJobs] = useState<readonly Job[]>([]);
  useEffect(() => closeOutside(menu), []);
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let current = true;
    const look = async (): Promise<void> => {
      let found: readonly Job[] = [];
      // A page that nobody sees asks for nothing.
      if (document.visibilityState === "visible") found = await source.jobs().catch(() => []);
      if (!current) return;
      setJobs((before) => (before.length === 0 && found.length === 0 ? before : found));
      timer = setTimeout(() => void look(), found.length > 0 ? OFTEN : SELDOM);
    };
    timer = setTimeout(() => void look(), OFTEN);
    return () => {
      current = false;
      clearTimeout(timer);
    };
  }, [source]);
  return (
    <details class="menu work" ref={menu} hidden={jobs.length === 0} data-testid="work">
      <summary>
        Work <span aria-live="polite">({jobs.length})</span>
      </summary>
      <div class="menu-sheet" role="group" aria-label="Work under way">
        {jobs.map((job) => (
          <Progress
            key={job.id}
            label={jobLabel(job)}
            done={job.done}
            total={job.state === "waiting" ? null : job.total}
            secondsLeft={job.seconds_left}
            onCancel={() => void source.cancelJob(job.id).catch(() => undefined)}
          />
        ))}
      </div>
    </details>
  );
}
