import { useMemo, useRef, useState } from "preact/hooks";

import { sentence } from "../../parts/answer";
import type { CheckedStep, CheckReport, Source, Verdict } from "../../source/source";
import { useViewState } from "../../state";
import "./check.css";

const START = `Q = [[1, 0]]
K = [[1, 0], [0, 1], [1, 1]]
V = [[10, 0], [0, 10], [5, 5]]
scores: 1 0 1
scaled: 0.707 0 0.707
weights: 0.401 0.198 0.401
output: 6.015 3.985`;
/** A longer text is kept in the page but not in its address. */
const IN_ADDRESS = 1500;

const SIGNS: Record<Verdict, string> = { given: "", right: "✓", rounded: "≈", inherited: "↳", wrong: "✗" };
const MEANS: Record<Verdict, string> = {
  given: "given",
  right: "right",
  rounded: "right but for rounding",
  inherited: "follows from a wrong number",
  wrong: "wrong",
};

/** Is this tutorial right? Printed numbers in, a verdict on each of them out. */
export function CheckView({ source }: { source: Source }) {
  const state = useViewState();
  const address = useMemo(() => state.param("printed", ""), [state]);
  const [text, setText] = useState(address.peek() || START);
  const [report, setReport] = useState<CheckReport | null>(null);
  const [failure, setFailure] = useState<string | null>(null);
  const asked = useRef(0);
  const ask = async (): Promise<void> => {
    const mine = ++asked.current;
    address.value = text.length <= IN_ADDRESS && text !== START ? text : "";
    try {
      const found = await source.check(text);
      if (mine !== asked.current) return;
      setReport(found);
      setFailure(null);
    } catch (error) {
      if (mine !== asked.current) return;
      setReport(null);
      setFailure(sentence(error));
    }
  };
  return (
    <div class="check">
      <section class="panel check-form" aria-label="Printed numbers">
        <label class="check-text">
          <span>Printed numbers</span>
          <textarea
            rows={9}
            value={text}
            spellcheck={false}
            data-testid="check-text"
            onInput={(event) => setText(event.currentTarget.value)}
          />
        </label>
        <p class="small soft">
          A worked example with its names, as printed: JSON, a Markdown or LaTeX table, printed arrays, plain text.
          Digits count: 0.40 is known to ±0.005.
        </p>
        <div>
          <button
            type="button"
            class="primary"
            data-testid="check-ask"
            disabled={text.trim() === ""}
            onClick={() => void ask()}
          >
            Check the numbers
          </button>
        </div>
      </section>
      {failure && (
        <p class="notice failure" role="alert" data-testid="check-failure">
          {failure}
        </p>
      )}
      {report && <Result report={report} />}
    </div>
  );
}

function Result({ report }: { report: CheckReport }) {
  return (
    <section class="panel check-result" aria-label="What was found" data-testid="check-result">
      {report.examples.map((example, i) => (
        <div key={i} class="check-example">
          <h2 data-testid="check-summary">
            {example.name && `${example.name}: `}
            {summary(example.wrong, example.checked)}
          </h2>
          {example.notes.map((note) => (
            <p key={note} class="soft">
              {note}
            </p>
          ))}
          {example.steps.map((step) => (
            <Step key={step.name} step={step} />
          ))}
        </div>
      ))}
      <p class="check-legend small soft">
        {(Object.keys(SIGNS) as Verdict[]).map((verdict) => (
          <span key={verdict}>
            <b class={`check-cell check-${verdict}`}>0.5{SIGNS[verdict]}</b> {MEANS[verdict]}
          </span>
        ))}
      </p>
    </section>
  );
}

function Step({ step }: { step: CheckedStep }) {
  const wrong = (cause: string) =>
    step.cells.flatMap((row, i) =>
      row.map((cell, j) => ({ cell, where: place(step, i, j) })).filter(({ cell }) => cell.cause === cause),
    );
  return (
    <div class="check-step" data-testid={`check-${step.name}`}>
      <h3>
        <code>{step.formula}</code>
        {step.verdict === "given" && <span class="soft small"> given</span>}
      </h3>
      <div class="grid-scroll" tabIndex={0} role="group" aria-label={step.name}>
        <table>
          {step.columns.length > 0 && (
            <thead>
              <tr>
                {step.rows.length > 0 && <td />}
                {step.columns.map((name, j) => (
                  <th key={j} scope="col">
                    {name}
                  </th>
                ))}
              </tr>
            </thead>
          )}
          <tbody>
            {step.cells.map((row, i) => (
              <tr key={i}>
                {step.rows.length > 0 && <th scope="row">{step.rows[i]}</th>}
                {row.map((cell, j) => (
                  <td key={j} class={`check-cell check-${cell.verdict}`} title={cell.cause || MEANS[cell.verdict]}>
                    {cell.printed}
                    <span role="img" aria-label={MEANS[cell.verdict]}>
                      {SIGNS[cell.verdict]}
                    </span>
                    {cell.cause && cell.right && <small>{cell.right}</small>}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {step.causes.map((cause) => (
        <p key={cause} class="check-cause" data-testid="check-cause">
          <b>{cause.charAt(0).toUpperCase() + cause.slice(1)}.</b>{" "}
          {wrong(cause)
            .slice(0, 6)
            .map(({ cell, where }) => `${where}: ${cell.printed}${cell.right && `, right is ${cell.right}`}`)
            .join("; ")}
        </p>
      ))}
    </div>
  );
}

function place(step: CheckedStep, i: number, j: number): string {
  const row = step.rows[i] ?? `row ${i}`;
  const column = step.columns[j] ?? `column ${j}`;
  return step.cells.length === 1 && step.rows.length === 0 ? column : `${row}, ${column}`;
}

function summary(wrong: number, checked: number): string {
  return wrong === 0
    ? `all ${checked} checked numbers are right`
    : `${wrong} of ${checked} checked numbers are not right`;
}
