import "../src/style.css";
import "../src/shell.css";

import { render } from "preact";

import { App } from "../src/app";
import { PathSource } from "../src/source/paths";
import { createState } from "../src/state";
import { MockTransport } from "./mock";

const query = new URLSearchParams(location.search);
const window_ = query.get("window");
const source = new PathSource(new MockTransport(Number(query.get("n") ?? 2001), window_ ? Number(window_) : null));
render(<App source={source} state={createState()} />, document.getElementById("app")!);
