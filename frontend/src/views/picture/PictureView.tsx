import { useMemo } from "preact/hooks";

import { type Open, useOpen } from "../../context";
import { useAnswer } from "../../parts/answer";
import { Chooser } from "../../parts/chooser";
import { Failure } from "../../parts/failure";
import { Segmented } from "../../parts/segmented";
import type { Sight, Source } from "../../source/source";
import { useViewState, type ViewState } from "../../state";
import { useAsking } from "../text/asking";
import { TextModel } from "../text/model";
import { Question } from "../text/Question";
import { Canvas } from "./Canvas";
import { Heaviest } from "./Heaviest";
import { useSpoken } from "./said";
import { Words } from "./Words";
import "./picture.css";

/** What a token looks at, laid over the image that the model saw or the sound that it heard. */
export function PictureView({ source }: { source: Source }) {
  const state = useViewState();
  const open = useOpen();
  const { id: rec } = open.recording;
  const { role } = open.stack;
  const there = open.recording.pictures.includes(role);
  const { value, failure } = useAnswer(there ? (signal) => source.pictures(rec, role, signal) : null, [
    source,
    rec,
    role,
  ]);
  if (!there) return <Elsewhere open={open} state={state} />;
  if (failure) return <Failure text={failure} />;
  if (!value) {
    return (
      <p class="notice" role="status">
        Opening the picture…
      </p>
    );
  }
  return <Shown source={source} state={state} open={open} pictures={value.pictures} />;
}

/** Another stack sees the picture, or none does. */
function Elsewhere({ open, state }: { open: Open; state: ViewState }) {
  const others = open.recording.pictures;
  if (others.length === 0) {
    return (
      <p class="notice">
        This recording has no picture: the model read a text alone, or it was recorded without{" "}
        <code>regard record --image</code> and <code>--audio</code>.
      </p>
    );
  }
  return (
    <div class="notice">
      <p>The {open.stack.role} does not look at the picture.</p>
      {others.map((role) => (
        <button key={role} type="button" class="primary" onClick={() => goTo(state, open, role)}>
          Show the {role}
        </button>
      ))}
    </div>
  );
}

function goTo(state: ViewState, open: Open, role: string): void {
  const stack = open.recording.stacks.find((one) => one.role === role);
  state.go({ role, layer: stack?.layers[0] ?? 0, head: 0, x: null, y: null, z: null, query: null, key: null });
}

interface ShownProps {
  source: Source;
  state: ViewState;
  open: Open;
  pictures: readonly Sight[];
}

function Shown({ source, state, open, pictures }: ShownProps) {
  const model = useMemo(() => new TextModel(source, state, open), [source, open.recording.id, open.stack.role]);
  useAsking(model);
  const listens = open.apart && pictures.some(({ kind }) => kind === "sound");
  const spoken = useSpoken(source, model, listens);
  return (
    <div class="picture-view">
      <div class="picture-main">
        <Bar model={model} />
        <Asked model={model} />
        <div class="pictures">
          {pictures.map((picture) => (
            <Canvas
              key={picture.name}
              model={model}
              picture={picture}
              words={spoken.value?.words ?? []}
              alone={pictures.length === 1}
            />
          ))}
        </div>
        {listens && <Words model={model} spoken={spoken.value} failure={spoken.failure} />}
      </div>
      <aside class="picture-side" aria-label="The heaviest places">
        <Heaviest model={model} pictures={pictures} />
      </aside>
    </div>
  );
}

function Bar({ model }: { model: TextModel }) {
  const { scale } = model.state;
  return (
    <div class="picture-bar" role="group" aria-label="How to look">
      <Question model={model} />
      <Segmented
        name="Brightness"
        value={scale.value}
        values={[
          ["log", "log"],
          ["linear", "linear"],
        ]}
        onChange={(value) => (scale.value = value)}
      />
    </div>
  );
}

/** The token that is asked about; patches can be clicked as well. */
function Asked({ model }: { model: TextModel }) {
  const back = model.direction.value === "queries";
  const { stack, tokens, queryTokens } = model.open;
  const chosen = model.chosen.value;
  if (model.source.kind === "static" || chosen === null) return null;
  const value = back ? chosen : chosen - model.shift;
  return (
    <div class="picture-choose">
      <Chooser
        role={back ? "key" : "query"}
        name={back ? "Key" : "Query"}
        tokens={back ? tokens : queryTokens}
        value={value}
        last={(back ? stack.keys : stack.queries) - 1}
        onChange={(i) => model.choose(back ? i : i + model.shift)}
      />
    </div>
  );
}
