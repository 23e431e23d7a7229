import "./style.css";
import "./shell.css";
import "./widget/widget.css";

import { effect } from "@preact/signals";
import { h, render } from "preact";

import { type Channel, CommSource, CommTransport } from "./source/comm";
import { createState } from "./state";
import { Frame, type Shown } from "./widget/Frame";
import { followNotebook, isDark } from "./widget/theme";
import { bind, type Traits } from "./widget/traits";

type Model = Channel & Traits;

/** Hide the picture that stands in for a widget, whether its output is on the page already or still to come. */
function hideStill(name: string): () => void {
  const picture = `[data-regard-still="${CSS.escape(name)}"]`;
  const style = document.createElement("style");
  style.textContent = `${picture}, .jp-OutputArea-child:has(${picture}), .output_area:has(${picture}) { display: none }`;
  document.head.append(style);
  return () => style.remove();
}

/** What anywidget calls for every place the widget is shown in; the result is called when that place goes. */
function show({ model, el }: { model: Model; el: HTMLElement }): () => void {
  const root = document.createElement("div");
  root.className = "regard-widget";
  root.dataset.testid = "regard-widget";
  // JupyterLab's shortcuts are single letters and arrows; while a key is meant for the map they rest.
  root.dataset.lmSuppressShortcuts = "true";
  el.append(root);

  const transport = new CommTransport(model);
  const state = createState({ url: false });
  const stops = [bind(state, model), followNotebook(el), () => transport.dispose(), () => state.dispose()];
  stops.push(
    effect(() => {
      root.dataset.theme = isDark() ? "dark" : "light";
    }),
  );
  const size = (): void => {
    root.style.height = `${Number(model.get("height"))}px`;
  };
  size();
  model.on("change:height", size);
  stops.push(() => model.off("change:height", size));

  window.regard = { ...window.regard, state };
  const views = model.get("views") as Shown[];
  const onAlive = (): void => void stops.push(hideStill(String(model.get("still"))));
  render(h(Frame, { source: new CommSource(transport), state, views, onAlive }), root);
  return () => {
    render(null, root);
    for (const stop of stops) stop();
    root.remove();
  };
}

export default { render: show };
