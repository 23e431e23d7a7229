import { describe, expect, it } from "vitest";

import { emptyArchive, pack, unpack } from "../src/export/archive";
import { xml } from "../src/export/exporter";
import { insideJson, insideScript } from "../src/export/files";
import { type ColourScale, colourOf, colourTable, fraction, inkOn, paint, valueAt } from "../src/parts/colour";
import { formatNumber, formatShort, formatWeight } from "../src/parts/format";
import { legendTicks, tickLabel } from "../src/parts/legend";
import { TokenTable, visible } from "../src/parts/tokens";
import { StaticSource, StaticTransport } from "../src/source/static";
import { createState } from "../src/state";
import { axisMarks, findSections, roundStep } from "../src/views/map/axes";
import { tilesToKeep } from "../src/views/map/gather";
import { parseBox, printBox, robustPeak } from "../src/views/map/model";

const log: ColourScale = { palette: "viridis", scale: "log", low: 1e-5, high: 1 };
const linear: ColourScale = { palette: "viridis", scale: "linear", low: 0, high: 0.5 };

function table(pieces: string[]): TokenTable {
  let at = 0;
  const starts = pieces.map((piece) => {
    at += [...piece].length;
    return at - [...piece].length;
  });
  const stops = pieces.map((piece, i) => starts[i]! + [...piece].length);
  return new TokenTable({ text: pieces.join(""), ids: pieces.map((_, i) => i), starts, stops, pieces });
}

describe("colours", () => {
  it("turns a fraction back into its weight", () => {
    for (const scale of [log, linear]) expect(fraction(valueAt(0.3, scale), scale)).toBeCloseTo(0.3);
  });
  it("paints what it says, within one of 256 steps", () => {
    for (const scale of [log, linear]) {
      const values = Float32Array.from({ length: 65 }, (_, i) => valueAt(i / 64, scale));
      const pixels = new Uint32Array(65);
      paint(values, pixels, scale);
      const colours = colourTable("viridis");
      values.forEach((value, i) => {
        expect(Math.abs(colours.indexOf(pixels[i]!) - fraction(value, scale) * 255)).toBeLessThanOrEqual(1.01);
      });
    }
  });
  it("paints zero, and less than the least, in the first colour", () => {
    const pixels = new Uint32Array(2);
    paint(Float32Array.of(0, 1e-9), pixels, log);
    expect([...pixels]).toEqual([colourTable("viridis")[0], colourTable("viridis")[0]]);
  });
  it("writes dark on light and light on dark", () => {
    expect(inkOn(colourOf(1, log))).toBe("#000");
    expect(inkOn(colourOf(0, log))).toBe("#fff");
  });
  it("labels decades on a log scale", () => {
    expect(legendTicks(log, 6).map((tick) => tickLabel(tick, log))).toEqual([
      "10⁻⁵",
      "10⁻⁴",
      "10⁻³",
      "0.01",
      "0.1",
      "1",
    ]);
    expect(legendTicks(linear)).toEqual([0, 0.2, 0.4]);
  });
  it("is not dimmed by the first query's lone weight of 1", () => {
    const values = new Float32Array(2000).fill(0.013);
    values[0] = 1;
    expect(robustPeak(values)).toBeCloseTo(0.02);
    expect(robustPeak(new Float32Array(4))).toBe(1);
  });
});

describe("numbers", () => {
  it.each([
    [0, "0"],
    [0.12345, "0.123"],
    [-2, "−2"],
    [1.6e-5, "1.60·10⁻⁵"],
    [Number.NaN, "–"],
    [-Infinity, "−∞"],
  ])("%d is %s", (value, text) => {
    expect(formatNumber(value)).toBe(text);
  });
  it("keeps four places of a weight", () => expect(formatWeight(0.25)).toBe("0.2500"));
  it("shortens long counts", () =>
    expect([999, 131_072, 2_500_000].map(formatShort)).toEqual(["999", "131.1k", "2.5M"]));
});

describe("tokens", () => {
  it("counts code points, not units", () => expect(table(["😀", "a", "é"]).raw(1)).toBe("a"));
  it("names what cannot be seen, and leaves joined letters whole", () => {
    const family = "\u{1f469}\u200d\u{1f467}";
    const shown = ["a\u200bb", "\u202eevil\u202c", "\u200d", "\u0007", `${family}`, "e\u0301\u0302", "\ufeff"].map(
      visible,
    );
    expect(shown).toEqual(["a⟨200B⟩b", "⟨202E⟩evil⟨202C⟩", "⟨200D⟩", "␇", family, "e\u0301\u0302", "⟨FEFF⟩"]);
    expect(visible("x".repeat(99))).toBe(`${"x".repeat(48)}…`);
    expect(visible(`a${"\u0301".repeat(99)}`)).toBe(`a${"\u0301".repeat(47)}…`);
  });
  it("shows blanks", () => expect([" a", " ", "\n\n", ""].map(visible)).toEqual(["a", "␣", "⏎⏎", "∅"]));
  it("finds a word of several tokens and a position", () => {
    const tokens = table(["The", " bad", "ger", " sat"]);
    expect(tokens.find("badger")).toEqual([1]);
    expect(tokens.find("#2")).toEqual([2]);
    expect(tokens.find("fox")).toEqual([]);
  });
  it("starts at the first query where a cache holds earlier keys", () =>
    expect(table(["a", "b", "c"]).from(2).raw(0)).toBe("c"));
});

describe("axes", () => {
  const tokens = table(["One", " day", "\n\n", "Two", " days", ".", "\n\n", "End"]);
  it("finds paragraphs by their first words", () => {
    expect(findSections(tokens, []).map(({ at, title }) => [at, title])).toEqual([
      [0, "One day"],
      [3, "Two days."],
      [7, "End"],
    ]);
  });
  it("shows single tokens where there is room and sections where not", () => {
    const sections = findSections(tokens, []);
    const near = axisMarks({ from: 0, to: 8, count: 8, scale: 20 }, tokens, sections, 20);
    expect(near.map(({ kind }) => kind)).toEqual(Array.from({ length: 8 }, () => "token"));
    const far = axisMarks({ from: 0, to: 8, count: 8, scale: 8 }, tokens, sections, 20);
    expect(far.filter(({ kind }) => kind === "section").map(({ index }) => index)).toEqual([0, 3, 7]);
  });
  it("steps by 1, 2 or 5", () => expect([0.3, 3, 12, 70].map(roundStep)).toEqual([1, 5, 20, 100]));
});

describe("addresses", () => {
  it("come back as they were written", () => {
    const state = createState({ url: false, hash: "#/text?layer=3&head=2&x=1.5&query=7&step=scores" });
    expect([state.view.value, state.layer.value, state.x.value, state.query.value]).toEqual(["text", 3, 1.5, 7]);
    expect(state.param("step").value).toBe("scores");
    expect(createState({ url: false, hash: state.hash() }).hash()).toBe(state.hash());
  });
  it("fall back where they make no sense", () => {
    const state = createState({ url: false, hash: "#/nowhere?layer=-1&how=median&z=oops" });
    expect([state.view.value, state.how.value, state.z.value]).toEqual(["map", "max", null]);
    expect(state.hash()).toBe("#/map");
  });
  it("hold a region", () => {
    const box = { q0: 1, q1: 9, k0: 0, k1: 3 };
    expect(parseBox(printBox(box))).toEqual(box);
    expect(parseBox("9-1_0-3")).toBeNull();
  });
});

describe("exported files", () => {
  it("carry exact floats", async () => {
    const values = Float32Array.from({ length: 63 }, (_, i) => Math.exp(-i));
    const back = await unpack(await pack({ rows: 7, cols: 9, values }));
    expect([...back.values]).toEqual([...values]);
  });
  it("read a cell off the tile that went along and say what is missing", async () => {
    const archive = emptyArchive("#/map", ["map"]);
    const map = { rec: "a b", role: "self", layer: 0, head: 1 };
    const path = "/api/recordings/a%20b/stacks/self/layers/0/heads/1/tile?level=0&row=0&col=0&how=mean";
    archive.grids[path] = await pack({ rows: 2, cols: 2, values: Float32Array.of(1, 0, 0.25, 0.75) });
    const stack = {
      role: "self",
      layers: [0],
      heads: 2,
      kv_heads: 2,
      queries: 301,
      keys: 301,
      windows: {},
      documents: [],
      causal: true,
    };
    archive.json["/api/recordings/a%20b"] = { stacks: [stack] };
    const source = new StaticSource(new StaticTransport(archive));
    expect(await source.cell(map, 0, 1)).toMatchObject({ weight: 0, visible: false });
    expect(await source.cell(map, 1, 1)).toMatchObject({ weight: 0.75, visible: true, distance: 0 });
    await expect(source.cell(map, 300, 1)).rejects.toThrow("This is an exported page");
  });
  it("cannot be broken out of by a token", () => {
    expect(insideJson({ token: "</script><!--" })).not.toContain("<");
    expect(insideScript('"</script>" + "<!--"')).toBe('"<\\/script>" + "<\\!--"');
    expect(xml('<a b="c">&\u0000')).toBe("&lt;a b=&quot;c&quot;&gt;&amp;");
  });
  it("take the overview whole and the screen exactly", () => {
    const mask = { queries: 100_000, keys: 100_000, causal: true, window: null };
    const kept = tilesToKeep(mask, { x: 50_000, y: 50_100, scale: 16 }, { width: 900, height: 600 }, "max");
    const levels = (level: number) => kept.filter((at) => at.level === level).length;
    expect(levels(9)).toBe(1);
    expect(levels(8)).toBe(3);
    expect(levels(0)).toBeGreaterThan(0);
    expect(kept.length).toBeLessThan(60);
  });
});
