import type { Archive } from "./archive";
import type { Picture } from "./exporter";
import { styles } from "./snapshot";

/** The three kinds of file a view becomes. */

export function svgFile(picture: Picture): Blob {
  return new Blob([picture.svg], { type: "image/svg+xml" });
}

/** Twice the size on screen, so that it prints well. */
export async function pngFile(picture: Picture, scale = 2): Promise<Blob> {
  const image = new Image();
  // A data address and not a blob's: browsers refuse to read back a canvas that held foreign markup otherwise.
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(picture.svg)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = Math.round(picture.width * scale);
  canvas.height = Math.round(picture.height * scale);
  const context = canvas.getContext("2d");
  if (!context) throw new Error("This browser gives no 2D canvas.");
  context.imageSmoothingEnabled = false;
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done, fail) => {
    canvas.toBlob(
      (blob) => (blob ? done(blob) : fail(new Error("The picture is too large for this browser."))),
      "image/png",
    );
  });
}

/** The page's own script: a file of the server, or, in an exported page, part of the page. */
async function scriptText(): Promise<string> {
  const inline = document.querySelector<HTMLScriptElement>("script[data-regard]");
  if (inline?.textContent) return inline.textContent;
  const linked = document.querySelector<HTMLScriptElement>('script[type="module"][src]');
  if (!linked) throw new Error("The page cannot find its own script.");
  const response = await fetch(linked.src);
  if (!response.ok) throw new Error(`The page's script cannot be read: ${response.status}.`);
  return response.text();
}

/** Neither a script nor data may end the element that holds it. */
export function insideScript(text: string): string {
  return text.replace(/<\/(script)/gi, "<\\/$1").replaceAll("<!--", "<\\!--");
}

export function insideJson(value: unknown): string {
  return JSON.stringify(value)
    .replaceAll("<", "\\u003c")
    .replaceAll("\u2028", "\\u2028")
    .replaceAll("\u2029", "\\u2029");
}

/** What an exported page may do: run what is in it, draw, and reach nothing. */
const POLICY =
  "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'";

/** One file with everything in it: style, data, script. */
export async function htmlFile(archive: Archive, title: string): Promise<Blob> {
  const heading = title.replace(/[<>&]/g, " ");
  const parts = [
    `<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="${POLICY}">\n`,
    `<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>${heading}</title>\n`,
    `<style>${styles().replace(/<\/(style)/gi, "<\\/$1")}</style>\n</head>\n<body>\n<div id="app"></div>\n`,
    `<script type="application/json" id="regard-archive">${insideJson(archive)}</script>\n`,
    `<script type="module" data-regard>${insideScript(await scriptText())}</script>\n</body>\n</html>\n`,
  ];
  return new Blob(parts, { type: "text/html" });
}

export function download(blob: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
