import { fileURLToPath } from "node:url";

import { defineConfig } from "vite";

const SCOPE = ".regard-widget";
const ROOTS = /^(:root|html|body|#app)(?![\w-])/;

interface Rule {
  selectors: string[];
  parent?: { type: string; name?: string };
}

/** One selector as it holds inside the widget alone. */
function scoped(selector: string): string {
  return ROOTS.test(selector) ? selector.replace(ROOTS, SCOPE) : `${SCOPE} ${selector}`;
}

// The page owns its window, the widget one cell of somebody's notebook: its rules must not reach further, and
// what depends on the width of the window must depend on that of the cell.
const inside = {
  postcssPlugin: "regard-inside",
  Once(root: {
    walkRules(visit: (rule: Rule) => void): void;
    walkAtRules(name: string, visit: (rule: { name: string; params: string }) => void): void;
  }) {
    root.walkRules((rule) => {
      if (!rule.parent?.name?.endsWith("keyframes")) rule.selectors = [...new Set(rule.selectors.map(scoped))];
    });
    root.walkAtRules("media", (rule) => {
      if (/^\((max|min)-width:[^)]*\)$/.test(rule.params)) rule.name = "container";
    });
  },
};

// One script and one style sheet with everything in them: a notebook may have no network.
export default defineConfig({
  build: {
    outDir: process.env.REGARD_STATIC ?? "../src/regard/viewer/static",
    emptyOutDir: false,
    target: "es2022",
    cssCodeSplit: false,
    modulePreload: false,
    chunkSizeWarningLimit: 2000,
    rolldownOptions: {
      input: fileURLToPath(new URL("src/widget.ts", import.meta.url)),
      preserveEntrySignatures: "strict",
      output: { format: "es", codeSplitting: false, entryFileNames: "widget.js", assetFileNames: "widget[extname]" },
    },
  },
  css: { postcss: { plugins: [inside as never] } },
  resolve: {
    alias: [
      { find: /^.*\/parts\/theme$/, replacement: fileURLToPath(new URL("src/widget/theme.ts", import.meta.url)) },
    ],
  },
});
