import "./style.css";
import "./shell.css";

import { render } from "preact";

import { App } from "./app";
import type { Archive } from "./export/archive";
import { HttpSource } from "./source/http";
import { StaticSource, StaticTransport } from "./source/static";
import { createState, type ViewState } from "./state";
import type { MapHooks } from "./views/map/hooks";
import { tries } from "./views/matter/tries";

declare global {
  interface Window {
    /** For tests and the console. */
    regard?: { state?: ViewState; map?: MapHooks };
  }
}

/** The cookie carries the token from here on: an address is seen, copied and kept in the history. */
function forgetToken(): void {
  const address = new URL(location.href);
  if (!address.searchParams.has("token")) return;
  address.searchParams.delete("token");
  history.replaceState(null, "", address);
}

const root = document.getElementById("app");
const archived = document.getElementById("regard-archive");
if (root && archived) {
  const archive = JSON.parse(archived.textContent ?? "") as Archive;
  const state = createState({ hash: location.hash || archive.hash });
  window.regard = { ...window.regard, state };
  tries.value = archive.tries;
  const source = new StaticSource(new StaticTransport(archive));
  render(<App source={source} state={state} views={archive.views} />, root);
} else if (root) {
  forgetToken();
  const state = createState();
  window.regard = { ...window.regard, state };
  render(<App source={new HttpSource()} state={state} />, root);
}
