import type { Picture } from "./exporter";

/** A picture of any element, as an SVG that carries the element itself and the page's style sheets. */
export function snapshot(element: HTMLElement): Picture {
  const copy = element.cloneNode(true) as HTMLElement;
  freezeCanvases(element, copy);
  const width = element.clientWidth;
  const height = Math.max(element.clientHeight, element.scrollHeight);
  const page = document.createElement("div");
  page.setAttribute("xmlns", "http://www.w3.org/1999/xhtml");
  const { background, color, font } = getComputedStyle(document.body);
  page.setAttribute(
    "style",
    `width:${width}px;height:${height}px;background:${background};color:${color};font:${font}`,
  );
  copy.style.overflow = "visible";
  page.append(copy);
  const body = new XMLSerializer().serializeToString(page);
  const theme = getComputedStyle(document.documentElement).colorScheme.includes("dark") ? "dark" : "light";
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" data-theme="${theme}" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}">
<style><![CDATA[${styles()}
*{animation:none!important;transition:none!important}]]></style>
<foreignObject width="100%" height="100%">${body}</foreignObject>
</svg>`;
  return { width, height, svg };
}

/** A copied canvas is empty, so each becomes an image of what it shows. */
function freezeCanvases(from: HTMLElement, to: HTMLElement): void {
  const copies = to.querySelectorAll("canvas");
  from.querySelectorAll("canvas").forEach((canvas, i) => {
    const copy = copies[i];
    if (!copy || canvas.width === 0 || canvas.height === 0) return;
    const image = document.createElement("img");
    image.src = canvas.toDataURL();
    image.className = copy.className;
    image.setAttribute(
      "style",
      `${copy.getAttribute("style") ?? ""};width:${canvas.clientWidth}px;height:${canvas.clientHeight}px`,
    );
    copy.replaceWith(image);
  });
  const fields = to.querySelectorAll("input, textarea");
  from.querySelectorAll<HTMLInputElement>("input, textarea").forEach((field, i) => {
    const copy = fields[i];
    if (copy?.tagName === "TEXTAREA") copy.textContent = field.value;
    else copy?.setAttribute("value", field.value);
  });
}

export function styles(): string {
  return Array.from(document.styleSheets, (sheet) => {
    try {
      return Array.from(sheet.cssRules, (rule) => rule.cssText).join("\n");
    } catch {
      return ""; // a sheet of another origin
    }
  }).join("\n");
}
