import { signal } from "@preact/signals";

/** Stands in for parts/theme in the widget: a notebook has a theme of its own, and the widget wears that. */

const dark = signal(false);

export function isDark(): boolean {
  return dark.value;
}

/** Light or dark by what lies behind an element, now and whenever the notebook changes its clothes. */
export function followNotebook(element: HTMLElement): () => void {
  const look = (): void => {
    dark.value = brightness(groundOf(element)) < 128;
  };
  const observer = new MutationObserver(look);
  for (const root of [document.documentElement, document.body]) observer.observe(root, { attributes: true });
  const system = matchMedia("(prefers-color-scheme: dark)");
  system.addEventListener("change", look);
  look();
  // The element may not be on the page yet, and then nothing lies behind it.
  const later = requestAnimationFrame(look);
  return () => {
    cancelAnimationFrame(later);
    observer.disconnect();
    system.removeEventListener("change", look);
  };
}

/** The first background that is not transparent. */
function groundOf(element: HTMLElement): string {
  for (let at: HTMLElement | null = element; at; at = at.parentElement) {
    const { backgroundColor } = getComputedStyle(at);
    if (!/^(transparent|rgba\(.*, 0\))$/.test(backgroundColor)) return backgroundColor;
  }
  return matchMedia("(prefers-color-scheme: dark)").matches &&
    getComputedStyle(document.documentElement).colorScheme.includes("dark")
    ? "rgb(0, 0, 0)"
    : "rgb(255, 255, 255)";
}

/** From 0 to 255; `color(srgb …)` counts to 1 where `rgb(…)` counts to 255. */
function brightness(colour: string): number {
  const [r = 255, g = 255, b = 255] = (colour.match(/[\d.]+/g) ?? []).map(Number);
  return (0.2126 * r + 0.7152 * g + 0.0722 * b) * (colour.startsWith("color(") ? 255 : 1);
}
