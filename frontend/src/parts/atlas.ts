import { useEffect, useState } from "preact/hooks";
import { type Atlas, isPending, type Job, type Source } from "../source/source";
import { sentence } from "./answer";

/** The atlas, once it is made; while it is being made, how far that is. */
export function useAtlas(
  source: Source,
  rec: string | null,
): { atlas: Atlas | null; job: Job | null; failure: string | null } {
  const [atlas, setAtlas] = useState<Atlas | null>(null);
  const [job, setJob] = useState<Job | null>(null);
  const [failure, setFailure] = useState<string | null>(null);
  useEffect(() => {
    if (rec === null) return;
    setAtlas(null);
    let current = true;
    const fail = (error: unknown): void => {
      if (current) setFailure(sentence(error));
    };
    const ask = async (): Promise<void> => {
      const answer = await source.atlas(rec);
      if (!current) return;
      if (!isPending(answer)) return setAtlas(answer);
      // Listened to until its end, whatever view the reader goes to meanwhile: the server ends a job that nobody
      // listens to, as when the page is closed.
      source.watchJob(
        answer.job,
        (now) => {
          if (!current) return;
          setJob(now);
          if (now.state === "done") ask().catch(fail);
          if (now.state === "failed" || now.state === "cancelled") fail(now.error ?? "The atlas was cancelled.");
        },
        fail,
      );
    };
    ask().catch(fail);
    return () => {
      current = false;
    };
  }, [source, rec]);
  return { atlas, job, failure };
}
