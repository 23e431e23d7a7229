import type { Stack } from "../source/source";

export interface HeadChoice {
  layer: number;
  head: number;
}

/** Choose a layer and a head: two lists with buttons for the neighbours. */
export function HeadPicker({
  stack,
  layer,
  head,
  onChange,
  label = "",
}: {
  stack: Stack;
  layer: number;
  head: number;
  onChange(choice: HeadChoice): void;
  label?: string;
}) {
  const suffix = label ? ` ${label}` : "";
  const place = stack.layers.indexOf(layer);
  return (
    <span class="head-picker">
      <Stepper
        name={`Layer${suffix}`}
        values={stack.layers}
        at={place}
        onChange={(i) => onChange({ layer: stack.layers[i]!, head })}
      />
      <Stepper
        name={`Head${suffix}`}
        values={Array.from({ length: stack.heads }, (_, i) => i)}
        at={head}
        onChange={(i) => onChange({ layer, head: i })}
      />
    </span>
  );
}

function Stepper({
  name,
  values,
  at,
  onChange,
}: {
  name: string;
  values: number[];
  at: number;
  onChange(index: number): void;
}) {
  const move = (by: number) => onChange(Math.min(values.length - 1, Math.max(0, at + by)));
  return (
    <span class="stepper" role="group" aria-label={name}>
      <button type="button" aria-label={`${name}: previous`} disabled={at <= 0} onClick={() => move(-1)}>
        ‹
      </button>
      <label>
        <span class="stepper-name">{name}</span>
        <select
          aria-label={name}
          data-testid={`pick-${name.toLowerCase().replaceAll(" ", "-")}`}
          value={String(at)}
          onChange={(event) => onChange(Number(event.currentTarget.value))}
        >
          {values.map((value, i) => (
            <option key={value} value={String(i)}>
              {value}
            </option>
          ))}
        </select>
      </label>
      <button type="button" aria-label={`${name}: next`} disabled={at >= values.length - 1} onClick={() => move(1)}>
        ›
      </button>
    </span>
  );
}
