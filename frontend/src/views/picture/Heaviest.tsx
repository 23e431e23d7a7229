import { formatWeight } from "../../parts/format";
import { TokenLabel } from "../../parts/tokens";
import type { Sight } from "../../source/source";
import type { TextModel } from "../text/model";
import { isIn, nameOf, patchOf } from "./places";

const THUMB = 34;

/** The heaviest tokens of what lights up, those of a picture as a cut-out of it. */
export function Heaviest({ model, pictures }: { model: TextModel; pictures: readonly Sight[] }) {
  const shown = model.chosen.value;
  const back = model.direction.value === "queries";
  const { lit, picked } = model;
  const top = model.top.value;
  // Patches are keys; where queries are another text, what looks at a frame is a word.
  const of = (token: number, keys: boolean): Sight | undefined =>
    keys || !model.open.apart
      ? pictures.find((picture) => isIn(picture, token) && picture.kind === "image")
      : undefined;
  const chosen = shown === null ? undefined : of(shown, back);
  return (
    <section class="panel" data-testid="picture-heaviest" aria-live="polite">
      {model.failure.value && <p class="small failure">{model.failure.value}</p>}
      {shown !== null && (
        <p class="picture-chosen">
          {chosen ? (
            <Cut picture={chosen} token={shown} label={lit.label(shown)} />
          ) : (
            <TokenLabel tokens={picked} i={shown} role={back ? "key" : "query"} />
          )}{" "}
          <span class="soft">{back ? "is looked at by" : "looks at"}</span>
        </p>
      )}
      <ol class="picture-top">
        {top.map(({ index, weight }) => {
          const picture = of(index, !back);
          const here = model.open.apart ? model.source.kind !== "static" : model.offers(index);
          return (
            <li key={index}>
              <button
                type="button"
                class="picture-item"
                disabled={!here}
                onClick={() => (model.open.apart ? model.follow(index) : model.choose(index))}
              >
                {picture ? (
                  <Cut picture={picture} token={index} label={lit.label(index)} />
                ) : (
                  <TokenLabel tokens={lit} i={index} role={back ? "query" : "key"} />
                )}
                <span class="number">{formatWeight(weight)}</span>
              </button>
            </li>
          );
        })}
      </ol>
    </section>
  );
}

/** A patch, cut out of its picture, and what it is called. */
function Cut({ picture, token, label }: { picture: Sight; token: number; label: string }) {
  const { left, top, width, height } = patchOf(picture, token);
  const place = (from: number, size: number): string => `${size < 1 ? (100 * from) / (1 - size) : 0}%`;
  return (
    <span class="picture-cut">
      <i
        aria-hidden="true"
        style={{
          width: `${THUMB}px`,
          height: `${THUMB}px`,
          backgroundImage: `url(data:image/png;base64,${picture.png})`,
          backgroundSize: `${100 / width}% ${100 / height}%`,
          backgroundPosition: `${place(left, width)} ${place(top, height)}`,
        }}
      />
      {nameOf(picture, token, label)}
    </span>
  );
}
