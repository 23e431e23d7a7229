import { defineConfig } from "vite";

// One script and one style sheet: an exported page carries both inside itself, and one file is easier to carry.
export default defineConfig({
  base: "./",
  build: {
    outDir: process.env.REGARD_STATIC ?? "../src/regard/viewer/static",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false,
    cssCodeSplit: false,
    chunkSizeWarningLimit: 2000,
    license: { fileName: "licenses.md" },
    rolldownOptions: { output: { codeSplitting: false } },
  },
  server: { proxy: { "/api": process.env.REGARD_SERVER ?? "http://127.0.0.1:8000" } },
});
