/** What can be done with recordings as files: keep one under a name, save one, open one. */

import { useEffect, useRef, useState } from "preact/hooks";
import type { Open } from "../context";
import type { Source, Upload } from "../source/source";
import { sentence } from "./answer";
import { closeOutside } from "./menu";
import { Progress } from "./progress";
import "./recordings.css";

interface RecordingsProps {
  source: Source;
  open: Open | null;
  /** Show another recording; "" is the first of the list. */
  onShow(rec: string): void;
}

export function Recordings({ source, open, onShow }: RecordingsProps) {
  const menu = useRef<HTMLDetailsElement>(null);
  const abort = useRef<AbortController | null>(null);
  const [arriving, arrive] = useState<{ done: number; total: number } | null>(null);
  const [said, say] = useState("");
  useEffect(() => closeOutside(menu), []);

  const attempt = async (work: () => Promise<string>): Promise<void> => {
    say("");
    try {
      onShow(await work());
      if (menu.current) menu.current.open = false;
    } catch (error) {
      if (menu.current) menu.current.open = true;
      say(abort.current?.signal.aborted ? "Stopped." : sentence(error));
    }
  };
  const take = (files: readonly Upload[], name: string): void => {
    if (files.length === 0) {
      say("There is no recording in it: a recording is a folder, or a ZIP file of one.");
      return;
    }
    const stop = new AbortController();
    abort.current = stop;
    if (menu.current) menu.current.open = true;
    arrive({ done: 0, total: 0 });
    const work = source.upload(files, name, (done, total) => arrive({ done, total }), stop.signal);
    void attempt(() => work).finally(() => arrive(null));
  };
  const dragged = useDrop(take);
  const recording = open?.recording;
  const own = recording?.storing ?? "no";
  const name = recording?.name.replace(/\.regard$/, "") ?? "";
  return (
    <>
      <details class="menu recordings" ref={menu} data-testid="recordings">
        <summary aria-label="Keep, save and open recordings" title="Keep, save and open recordings">
          ⋯
        </summary>
        <div class="menu-sheet" role="group" aria-label="Recordings">
          {recording && own !== "no" && (
            <form
              key={recording.id}
              onSubmit={(event) => {
                event.preventDefault();
                const wanted = String(new FormData(event.currentTarget).get("name") ?? "").trim();
                void attempt(() => source.keep(recording.id, wanted || name));
              }}
            >
              <input
                type="text"
                name="name"
                aria-label="Its name"
                maxLength={80}
                defaultValue={name}
                data-testid="keep-name"
              />
              <button type="submit" data-testid="keep">
                {own === "kept" ? "Keep a copy" : "Keep"}
              </button>
            </form>
          )}
          {recording && own === "kept" && (
            <button
              type="button"
              data-testid="remove"
              onClick={() =>
                void attempt(async () => {
                  await source.remove(recording.id);
                  return "";
                })
              }
            >
              Remove it from those kept
            </button>
          )}
          {recording && (
            <a href={`api/recordings/${encodeURIComponent(recording.id)}/file`} download data-testid="save">
              Save as a file
            </a>
          )}
          {own !== "no" && (
            <div class="pickers" role="group" aria-label="Open a recording">
              <Pick label="Open a file…" testid="open-file" accept=".zip" onPick={take} />
              <Pick label="Open a folder…" testid="open-folder" folder onPick={take} />
            </div>
          )}
          {arriving && (
            <Progress
              label="Opening the recording…"
              done={arriving.done}
              total={arriving.total}
              secondsLeft={null}
              onCancel={() => abort.current?.abort()}
            />
          )}
          <p class="small soft" role="status" data-testid="recordings-said">
            {said || (own === "no" ? "" : "A recording can be dropped anywhere on this page.")}
          </p>
        </div>
      </details>
      {dragged && own !== "no" && (
        <div class="drop-here" aria-hidden="true">
          Drop a recording: its folder, or a ZIP file of it
        </div>
      )}
    </>
  );
}

interface PickProps {
  label: string;
  testid: string;
  accept?: string;
  folder?: boolean;
  onPick(files: readonly Upload[], name: string): void;
}

function Pick({ label, testid, accept, folder = false, onPick }: PickProps) {
  return (
    <label>
      {label}
      <input
        type="file"
        data-testid={testid}
        {...(accept ? { accept } : {})}
        {...(folder ? { webkitdirectory: true } : {})}
        onChange={(event) => {
          const files = [...(event.currentTarget.files ?? [])];
          event.currentTarget.value = "";
          onPick(ofFolder(files), nameOf(files[0]?.webkitRelativePath.split("/")[0] || files[0]?.name || ""));
        }}
      />
    </label>
  );
}

/** The files of a recording, or the ZIP file. */
export function ofFolder(files: readonly File[]): Upload[] {
  const zip = files.find((file) => file.name.endsWith(".zip"));
  if (zip) return [{ name: "upload.zip", file: zip }];
  const wanted = files.filter(({ name }) => /^[A-Za-z0-9].*\.(json|safetensors)$/.test(name));
  return wanted.some(({ name }) => name.startsWith("manifest"))
    ? wanted.map((file) => ({ name: file.name, file }))
    : [];
}

/** What to call a recording that comes from a file or folder of this name. */
export function nameOf(name: string): string {
  return name.replace(/\.zip$/, "").replace(/\.regard$/, "");
}

/** Whether something is being dragged over the page; what is dropped is taken. */
function useDrop(take: (files: readonly Upload[], name: string) => void): boolean {
  const [over, setOver] = useState(false);
  const latest = useRef(take);
  latest.current = take;
  useEffect(() => {
    const hasFiles = (event: DragEvent): boolean => event.dataTransfer?.types.includes("Files") ?? false;
    const move = (event: DragEvent): void => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      setOver(true);
    };
    const leave = (event: DragEvent): void => {
      if (event.relatedTarget === null) setOver(false);
    };
    const drop = (event: DragEvent): void => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      setOver(false);
      void dropped(event.dataTransfer!).then(([files, name]) => latest.current(files, name));
    };
    addEventListener("dragover", move);
    addEventListener("dragleave", leave);
    addEventListener("drop", drop);
    return () => {
      removeEventListener("dragover", move);
      removeEventListener("dragleave", leave);
      removeEventListener("drop", drop);
    };
  }, []);
  return over;
}

async function dropped(data: DataTransfer): Promise<[Upload[], string]> {
  const entry = data.items[0]?.webkitGetAsEntry();
  if (!entry?.isDirectory) {
    const files = [...data.files];
    return [ofFolder(files), nameOf(files[0]?.name ?? "")];
  }
  const reader = (entry as FileSystemDirectoryEntry).createReader();
  const found: File[] = [];
  for (;;) {
    // Some are given at a time, none at the end.
    const some = await new Promise<FileSystemEntry[]>((resolve, reject) => reader.readEntries(resolve, reject));
    if (some.length === 0) return [ofFolder(found), nameOf(entry.name)];
    for (const one of some.filter((each) => each.isFile))
      found.push(await new Promise<File>((resolve, reject) => (one as FileSystemFileEntry).file(resolve, reject)));
  }
}
