import { HeadPicker } from "../../parts/heads";
import { Legend } from "../../parts/legend";
import { mapRef, PALETTES, type PaletteName } from "../../state";
import type { MapModel } from "./model";

/** How weights are shown: mean or max, linear or log, which colours, and what the colours mean. */
export function ColourCard({ model }: { model: MapModel }) {
  const { how, scale, palette } = model.state;
  const bright = model.state.param("bright");
  const colours = model.colours.value;
  const setBright = (value: number): void => {
    bright.value = value >= -0.001 ? "" : String(Number((10 ** value).toPrecision(2)));
  };
  return (
    <section class="card" aria-label="Colours">
      <Legend scale={colours} title="weight" forbidden={model.causal.value === true} />
      <div class="rows">
        {model.bothWays && (
          <Choice
            name="One colour for many cells"
            label="blocks"
            value={how.value}
            values={["max", "mean"]}
            onChange={(v) => (how.value = v)}
          />
        )}
        <Choice
          name="Colour scale"
          label="scale"
          value={scale.value}
          values={["log", "linear"]}
          onChange={(v) => (scale.value = v)}
        />
        <label class="row">
          <span>colours</span>
          <select
            aria-label="Colours"
            data-testid="palette"
            value={palette.value}
            onChange={(e) => (palette.value = e.currentTarget.value as PaletteName)}
          >
            {PALETTES.map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </label>
        <label class="row">
          <span>brightest at</span>
          <input
            type="range"
            min={-4}
            max={0}
            step={0.05}
            aria-label="Weight with the brightest colour"
            aria-valuetext={String(colours.high)}
            value={Math.log10(colours.high)}
            onInput={(event) => setBright(Number(event.currentTarget.value))}
          />
        </label>
      </div>
    </section>
  );
}

function Choice<T extends string>({
  name,
  label,
  value,
  values,
  onChange,
}: {
  name: string;
  label: string;
  value: T;
  values: readonly T[];
  onChange(value: T): void;
}) {
  return (
    <div class="row" role="group" aria-label={name}>
      <span>{label}</span>
      <span class="segmented">
        {values.map((each) => (
          <button
            key={each}
            type="button"
            aria-pressed={value === each}
            data-testid={`${label}-${each}`}
            onClick={() => onChange(each)}
          >
            {each}
          </button>
        ))}
      </span>
    </div>
  );
}

/** Lines over the map, and a second head beside the first. */
export function OverlayCard({ model }: { model: MapModel }) {
  const { overlays } = model;
  const { stack } = model.open;
  const window = model.mask(mapRef(model.state)).window;
  const marks: ["w" | "s" | "d", string, boolean, boolean][] = [
    ["w", window === null ? "causal edge" : `window of ${window}`, overlays.value.window, model.causal.value === true],
    ["s", "first four keys (sink)", overlays.value.sink, true],
    ["d", "documents", overlays.value.documents, stack.documents.length > 1],
  ];
  return (
    <section class="card" aria-label="Lines over the map">
      <div class="checks">
        {marks.map(
          ([line, name, on, offered]) =>
            offered && (
              <label key={line}>
                <input type="checkbox" checked={on} data-testid={`line-${line}`} onChange={() => model.toggle(line)} />{" "}
                {name}
              </label>
            ),
        )}
      </div>
      <Beside model={model} />
    </section>
  );
}

function Beside({ model }: { model: MapModel }) {
  // An exported page holds no other heads.
  return model.source.kind === "static" ? null : <Choose model={model} />;
}

function Choose({ model }: { model: MapModel }) {
  const beside = model.state.param("beside");
  const second = model.beside.value;
  const { stack } = model.open;
  const first = mapRef(model.state);
  const start = (): void => {
    beside.value = `${first.layer}.${(first.head + 1) % stack.heads}`;
  };
  if (!second) {
    return (
      <button type="button" data-testid="compare" onClick={start}>
        Compare with another head
      </button>
    );
  }
  return (
    <div class="beside">
      <HeadPicker
        stack={stack}
        layer={second.layer}
        head={second.head}
        label="beside"
        onChange={({ layer, head }) => (beside.value = `${layer}.${head}`)}
      />
      <button type="button" data-testid="compare-stop" onClick={() => (beside.value = "")}>
        Close
      </button>
    </div>
  );
}
