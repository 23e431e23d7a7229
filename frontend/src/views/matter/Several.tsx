/** The list of what is blocked together, and ways to make it longer: in words, or all heads of a kind. */

import { useState } from "preact/hooks";
import type { Open } from "../../context";
import { useAtlas } from "../../parts/atlas";
import { Progress } from "../../parts/progress";
import type { Atlas, Source } from "../../source/source";
import { type Cut, cutName, outside, parseCut, printCut } from "./cuts";

interface SeveralProps {
  source: Source;
  open: Open;
  cuts: readonly Cut[];
  onChange(cuts: readonly Cut[]): void;
}

export function Several({ source, open, cuts, onChange }: SeveralProps) {
  const { tokens, queryTokens, stack } = open;
  const [refused, refuse] = useState<string | null>(null);
  const add = (more: readonly Cut[]): void => {
    const known = new Set(cuts.map(printCut));
    onChange([...cuts, ...more.filter((cut) => !known.has(printCut(cut)))]);
  };
  const read = (event: Event & { currentTarget: HTMLFormElement }): void => {
    event.preventDefault();
    const form = event.currentTarget;
    const text = String(new FormData(form).get("cut") ?? "");
    const cut = parseCut(text);
    const wrong = cut ? outside(cut, stack) : `“${text}” names nothing that can be blocked.`;
    refuse(wrong);
    if (!cut || wrong) return;
    add([cut]);
    form.reset();
  };
  if (source.kind === "static") return null;
  return (
    <div class="several">
      {cuts.length === 0 ? (
        <p class="small soft">Nothing yet: add heads, layers, tokens or edges.</p>
      ) : (
        <ul class="cuts" aria-label="Blocked together" data-testid="cuts">
          {cuts.map((cut) => {
            const name = cutName(
              cut,
              (i) => queryTokens.label(i),
              (i) => tokens.label(i),
            );
            return (
              <li key={printCut(cut)}>
                <span>{name}</span>
                <button
                  type="button"
                  aria-label={`Leave out ${name}`}
                  onClick={() => onChange(cuts.filter((other) => other !== cut))}
                >
                  ×
                </button>
              </li>
            );
          })}
        </ul>
      )}
      <form class="cut-form" onSubmit={read}>
        <input
          type="text"
          name="cut"
          aria-label="What to block as well"
          placeholder="5.2, layer 8, tokens 120–140, 5.2: 600 → 539"
          aria-invalid={refused !== null}
          data-testid="cut"
          onInput={() => refuse(null)}
        />
        <button type="submit">Add</button>
      </form>
      {refused && (
        <p class="small failure" role="alert">
          {refused}
        </p>
      )}
      <div class="several-more">
        <Kinds source={source} open={open} onPick={add} />
        {cuts.length > 0 && (
          <button type="button" onClick={() => onChange([])}>
            Empty the list
          </button>
        )}
      </div>
    </div>
  );
}

/** All heads of a kind at once; the atlas knows which they are, and is asked only when somebody wants to know. */
function Kinds({ source, open, onPick }: { source: Source; open: Open; onPick(cuts: readonly Cut[]): void }) {
  const [wanted, want] = useState(false);
  const { atlas, job, failure } = useAtlas(source, wanted ? open.recording.id : null);
  if (!wanted || failure)
    return (
      <>
        <button type="button" data-testid="kinds" disabled={wanted} onClick={() => want(true)}>
          Add a kind of heads…
        </button>
        {failure && <span class="small soft">{failure}</span>}
      </>
    );
  if (!atlas)
    return (
      <Progress
        label="Finding out what heads do…"
        done={job?.done ?? 0}
        total={job?.total ?? null}
        secondsLeft={job?.seconds_left ?? null}
        onCancel={job ? () => void source.cancelJob(job.id) : undefined}
      />
    );
  const groups = headsByKind(atlas, open.stack.role);
  return (
    <select
      aria-label="Add all heads of a kind"
      data-testid="pick-kind"
      value=""
      onChange={(event) => {
        onPick(groups.get(event.currentTarget.value) ?? []);
        event.currentTarget.value = "";
      }}
    >
      <option value="">Add all heads of a kind…</option>
      {[...groups].map(([kind, cuts]) => (
        <option key={kind} value={kind}>
          {kind} ({cuts.length})
        </option>
      ))}
    </select>
  );
}

function headsByKind(atlas: Atlas, role: string): Map<string, Cut[]> {
  const groups = new Map<string, Cut[]>();
  for (const { layer, head, findings, role: own } of atlas.heads) {
    if (own !== role) continue;
    for (const { kind, score, bar } of Object.values(findings)) {
      if (score === null || score < bar) continue;
      groups.set(kind, [...(groups.get(kind) ?? []), { kind: "head", layer, head }]);
    }
  }
  return groups;
}
