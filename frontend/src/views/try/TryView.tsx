import { useMemo } from "preact/hooks";
import { useAnswer } from "../../parts/answer";
import { Progress } from "../../parts/progress";
import type { Job, JobRequest, Source } from "../../source/source";
import { useViewState, type ViewState } from "../../state";
import { Growing } from "./Growing";
import { recordingOf } from "./generation";
import * as work from "./work";
import "./try.css";

const START = "Once upon a time there was a small fox who lived at the edge of the wood. One morning the small fox";
/** A longer text is kept in the page but not in its address. */
const IN_ADDRESS = 1500;

/** The reader's own text: record it, or let the model go on from it. */
export function TryView({ source }: { source: Source }) {
  const state = useViewState();
  const info = useAnswer(() => source.info(), [source]);
  if (info.value && !info.value.can_run_models) {
    return (
      <p class="notice" data-testid="try-no-models">
        There is no model here to run. Start with <code>regard view</code> to have the bundled one.
      </p>
    );
  }
  const show = (rec: string): void => work.showRecording(state, rec);
  const job = work.job.value;
  return (
    <div class="try">
      <Form source={source} state={state} models={info.value?.models ?? []} failure={info.failure} onRecorded={show} />
      {work.made.value.length > 0 && (
        <Growing
          source={source}
          made={work.made.value}
          text={work.given.value}
          busy={work.busy.value}
          recorded={job && recordingOf(job)}
          onOpen={show}
        />
      )}
    </div>
  );
}

interface FormProps {
  source: Source;
  state: ViewState;
  models: readonly { name: string; bundled: boolean }[];
  failure: string | null;
  onRecorded(recording: string): void;
}

function Form({ source, state, models, failure, onRecorded }: FormProps) {
  const settings = useSettings(state);
  const model = models.find((one) => one.name === settings.model.value)?.name ?? models[0]?.name ?? "";
  const { text, length, temperature } = settings;
  const name = work.name.value;
  const busy = work.busy.value;
  const ready = !busy && text.trim() !== "" && model !== "";
  const begin = (request: JobRequest): void => {
    const onEnd = (job: Job): void => {
      const made = recordingOf(job);
      if (made && job.kind === "record" && state.view.peek() === "try") onRecorded(made);
    };
    void work.start(source, request, onEnd);
  };
  return (
    <section class="panel try-form" aria-label="Your text">
      <label class="try-text">
        <span>Your text</span>
        <textarea
          rows={4}
          value={text}
          data-testid="try-text"
          spellcheck={false}
          onInput={(event) => settings.setText(event.currentTarget.value)}
        />
      </label>
      <div class="try-row">
        <label class="picker">
          <span>Model</span>
          <select
            value={model}
            data-testid="try-model"
            onChange={(event) => (settings.model.value = event.currentTarget.value)}
          >
            {models.map((one) => (
              <option key={one.name} value={one.name}>
                {one.bundled ? "the bundled model" : one.name}
              </option>
            ))}
          </select>
        </label>
        <label class="picker">
          <span>Name</span>
          <input
            type="text"
            value={name}
            maxLength={80}
            placeholder="its first words"
            data-testid="try-name"
            onInput={(event) => {
              work.name.value = event.currentTarget.value;
            }}
          />
        </label>
        <Slider
          name="New tokens"
          testid="try-length"
          value={length}
          min={1}
          max={200}
          step={1}
          onChange={(value) => (settings.n.value = String(value))}
        />
        <Slider
          name="Temperature"
          testid="try-temperature"
          value={temperature}
          min={0}
          max={2}
          step={0.05}
          onChange={(value) => (settings.t.value = String(value))}
        />
      </div>
      <div class="try-row">
        <button
          type="button"
          class="primary"
          data-testid="generate"
          disabled={!ready}
          onClick={() => begin({ kind: "generate", text, model, name, new_tokens: length, temperature, bound: true })}
        >
          Continue the text
        </button>
        <button
          type="button"
          data-testid="record"
          disabled={!ready}
          onClick={() => begin({ kind: "record", text, model, name, bound: true })}
        >
          Record it as it is
        </button>
        {models.some((one) => one.bundled) && (
          <button
            type="button"
            data-testid="book"
            disabled={busy}
            title="Alice's Adventures in Wonderland, 40,000 tokens; the recording is kept"
            onClick={() => void work.beginBook(source, state)}
          >
            Read the whole book
          </button>
        )}
      </div>
      <Under source={source} failure={failure ?? work.failure.value} />
    </section>
  );
}

/** How the present job is doing. */
function Under({ source, failure }: { source: Source; failure: string | null }) {
  const job = work.job.value;
  return (
    <>
      {failure && (
        <p class="failure" role="alert" data-testid="try-failure">
          {failure}
        </p>
      )}
      {work.busy.value && (
        <Progress
          label={job?.kind === "generate" ? "The model is writing…" : job ? "Recording…" : "Starting…"}
          done={job?.done ?? 0}
          total={job?.total ?? null}
          secondsLeft={job?.seconds_left ?? null}
          onCancel={job ? () => work.stop(source) : undefined}
        />
      )}
      <p role="status" class="small soft try-said">
        {job?.state === "cancelled" ? "Stopped." : ""}
      </p>
    </>
  );
}

interface SliderProps {
  name: string;
  testid: string;
  value: number;
  min: number;
  max: number;
  step: number;
  onChange(value: number): void;
}

function Slider({ name, testid, value, min, max, step, onChange }: SliderProps) {
  return (
    <label class="try-slider">
      <span>
        {name} <output>{value}</output>
      </span>
      <input
        type="range"
        min={min}
        max={max}
        step={step}
        value={value}
        data-testid={testid}
        onInput={(event) => onChange(Number(event.currentTarget.value))}
      />
    </label>
  );
}

function useSettings(state: ViewState) {
  const own = useMemo(
    () => ({
      text: state.param("text"),
      model: state.param("model"),
      n: state.param("n", "40"),
      t: state.param("temperature", "0.7"),
    }),
    [state],
  );
  return {
    model: own.model,
    n: own.n,
    t: own.t,
    text: own.text.value || (work.text.value ?? START),
    setText(value: string) {
      work.text.value = value;
      own.text.value = value.length <= IN_ADDRESS && value !== START ? value : "";
    },
    length: Math.round(within(own.n.value, 1, 200, 40)),
    temperature: within(own.t.value, 0, 2, 0.7),
  };
}

function within(text: string, low: number, high: number, fallback: number): number {
  const value = Number(text);
  return text !== "" && Number.isFinite(value) ? Math.min(high, Math.max(low, value)) : fallback;
}
