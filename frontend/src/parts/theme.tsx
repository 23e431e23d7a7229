import { signal } from "@preact/signals";

/** Light, dark, or as the system says; kept per browser, since it is the reader's taste and not part of a view. */

export type Theme = "system" | "light" | "dark";
const ORDER: readonly Theme[] = ["system", "light", "dark"];
const NAMES: Record<Theme, string> = { system: "Theme: as the system", light: "Theme: light", dark: "Theme: dark" };
const KEY = "regard-theme";

function kept(): Theme {
  try {
    return ORDER.find((name) => name === localStorage.getItem(KEY)) ?? "system";
  } catch {
    return "system"; // storage is refused in some frames and for files
  }
}

export const theme = signal<Theme>(kept());
const systemDark = matchMedia("(prefers-color-scheme: dark)");
const system = signal(systemDark.matches);
systemDark.addEventListener("change", () => (system.value = systemDark.matches));

export function isDark(): boolean {
  return theme.value === "system" ? system.value : theme.value === "dark";
}

export function setTheme(next: Theme): void {
  theme.value = next;
  document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem(KEY, next);
  } catch {
    // The choice then lasts as long as the page.
  }
}

document.documentElement.dataset.theme = theme.peek();

export function ThemeSwitch() {
  const next = ORDER[(ORDER.indexOf(theme.value) + 1) % ORDER.length]!;
  return (
    <button
      type="button"
      class="icon-button"
      aria-label={NAMES[theme.value]}
      title={`${NAMES[theme.value]}. Click for ${next}.`}
      data-testid="theme"
      onClick={() => setTheme(next)}
    >
      <svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">
        {theme.value === "light" ? (
          <g stroke="currentColor" stroke-width="1.4" fill="none" stroke-linecap="round">
            <circle cx="8" cy="8" r="3" fill="currentColor" />
            <path d="M8 1.2v1.6M8 13.2v1.6M1.2 8h1.6M13.2 8h1.6M3.2 3.2l1.1 1.1M11.7 11.7l1.1 1.1M12.8 3.2l-1.1 1.1M4.3 11.7l-1.1 1.1" />
          </g>
        ) : theme.value === "dark" ? (
          <path d="M13.6 10A6 6 0 0 1 6 2.4 6 6 0 1 0 13.6 10z" fill="currentColor" />
        ) : (
          <g>
            <circle cx="8" cy="8" r="6" fill="none" stroke="currentColor" stroke-width="1.4" />
            <path d="M8 2a6 6 0 0 1 0 12z" fill="currentColor" />
          </g>
        )}
      </svg>
    </button>
  );
}
