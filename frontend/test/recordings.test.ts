import { expect, it } from "vitest";

import { nameOf, ofFolder } from "../src/parts/recordings";
import { jobLabel } from "../src/parts/work";

const file = (name: string): File => ({ name }) as File;

it("a folder is taken if it is a recording's, and a ZIP file as it is", () => {
  const names = (...given: string[]) => ofFolder(given.map(file)).map(({ name }) => name);
  expect(names("manifest.json", "a-0.safetensors", ".DS_Store", "notes.txt")).toEqual([
    "manifest.json",
    "a-0.safetensors",
  ]);
  expect(names("notes.json")).toEqual([]);
  expect(names("mine.regard.zip")).toEqual(["upload.zip"]);
  expect(["mine.regard.zip", "mine.regard", "mine"].map(nameOf)).toEqual(["mine", "mine", "mine"]);
});

it("work says what it is, of what, and whether it waits", () => {
  expect(jobLabel({ kind: "pyramid", title: "story, layer 5, head 0", state: "running" })).toBe(
    "Overview: story, layer 5, head 0",
  );
  expect(jobLabel({ kind: "atlas", title: "", state: "waiting" })).toBe("Atlas (waits for its turn)");
});
