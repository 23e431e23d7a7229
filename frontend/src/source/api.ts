// Made by `python -m building.api` from the models in src/regard/viewer/answers/ and routes/; do not edit.
// schema 02a7e3b80bdff197

export interface components {
    schemas: {
        /** @description Which tokens two texts have in common, on either side of a stack. */
        Alignment: {
            queries: components["schemas"]["AlignmentRun"][];
            keys: components["schemas"]["AlignmentRun"][];
        };
        /** @description Equal tokens of two texts: where the run begins in each, and its length. */
        AlignmentRun: {
            first: number;
            second: number;
            length: number;
        };
        /** @description Every head, and which kinds and statistics they have. */
        Atlas: {
            heads: components["schemas"]["AtlasHead"][];
            kinds: string[];
            statistics: string[];
        };
        /** @description Some statistics are text: why there is no number, or which curve fits better. */
        AtlasHead: {
            role: string;
            layer: number;
            head: number;
            kinds: {
                [key: string]: number;
            };
            findings: {
                [key: string]: components["schemas"]["Finding"];
            };
            statistics: {
                [key: string]: number | string;
            };
        };
        /** @description Survey every head of a recording. */
        AtlasJob: {
            /** @constant */
            kind: "atlas";
            recording: string;
            bound?: boolean;
        };
        Attended: {
            key: number;
            token: string;
            weight: number;
        };
        /** @description Let the bundled model read the bundled book; the recording is kept. */
        BookJob: {
            /** @constant */
            kind: "book";
            bound?: boolean;
        };
        /** @description One pair of a query and a key; `rank` 1 is the heaviest key of the row. */
        Cell: {
            query: number;
            key: number;
            weight: number;
            score: number | null;
            log_weight: number | null;
            rank: number | null;
            visible: boolean;
            distance: number;
        };
        /** @description How likely a token is; null if the model returned NaN. */
        Chance: {
            token: string;
            id: number;
            probability: number | null;
        };
        /** @description Whether printed numbers follow from each other, example by example. */
        CheckReport: {
            ok: boolean;
            examples: components["schemas"]["CheckedExample"][];
        };
        /** @description Printed numbers with their names, in any form that `regard check` reads. */
        CheckRequest: {
            text: string;
        };
        CheckedCell: {
            printed: string;
            /** @enum {string} */
            verdict: "given" | "right" | "rounded" | "inherited" | "wrong";
            right: string;
            cause: string;
        };
        CheckedExample: {
            name: string;
            checked: number;
            wrong: number;
            notes: string[];
            steps: components["schemas"]["CheckedStep"][];
        };
        CheckedStep: {
            name: string;
            formula: string;
            /** @enum {string} */
            verdict: "given" | "right" | "rounded" | "inherited" | "wrong";
            rows: string[];
            columns: string[];
            cells: components["schemas"]["CheckedCell"][][];
            causes: string[];
        };
        /** @description The queries that attend to a key most, and all that it receives. */
        Column: {
            key: number;
            top: components["schemas"]["QueryWeight"][];
            mass: number;
        };
        /** @description Along the text, in bins of queries: the mean weight on a kind's keys, and the share of hits. */
        Curve: {
            position: number[];
            weight: number[];
            hits: number[];
        };
        Curves: {
            decay?: components["schemas"]["DecayCurve"] | null;
            profile?: components["schemas"]["ProfileCurve"] | null;
        };
        DecayCurve: {
            distance: number[];
            weight: number[];
        };
        /**
         * @description A recording; `live` if its model can be run, for knock-outs and new texts.
         *
         *     `pictures`: the stacks among whose keys are patches of an image or frames of a sound.
         *     `storing`: whether a reader can keep it, or keeps it already; "no" if other machines can reach the server.
         */
        Described: {
            id: string;
            name: string;
            model: string;
            kind: string;
            tokenizer: string | null;
            tokens: number;
            complete: boolean;
            live: boolean;
            /** @enum {string} */
            storing: "no" | "can" | "kept";
            stacks: components["schemas"]["StackShape"][];
            pictures: string[];
            levels: number;
            tile: number;
        };
        /** @description How far every head's rows differ, over this many of the `shared` queries; layers × heads. */
        Distances: {
            layers: number[];
            heads: number;
            distance: number[][];
            queries: number;
            shared: number;
        };
        /** @description An edge to cut; each part is a number or several, and null stands for all. */
        EdgeCut: {
            layer?: number | number[] | null;
            head?: number | number[] | null;
            query?: number | number[] | null;
            key?: number | number[] | null;
        };
        /**
         * @description One query in every head of a stack, or one key; lists are layers × heads.
         *
         *     For a query, `top` is the heaviest key and `entropy` is in nats. For a key, `top` is the query that gives
         *     it most and `mass` is all that it receives. `weight` is set if both were given.
         */
        Everywhere: {
            query: number | null;
            key: number | null;
            layers: number[];
            heads: number;
            top: number[][];
            top_weight: number[][];
            entropy: number[][] | null;
            mass: number[][] | null;
            weight: number[][] | null;
            others: components["schemas"]["Looked"][];
        };
        /** @description The evidence for a kind in one head: `queries` see such a key; in `hits` of them it is the heaviest. */
        Evidence: {
            kind: string;
            looks_for: string;
            queries: number;
            hits: number;
            mean: number;
            step: number;
            along: components["schemas"]["Curve"];
            places: components["schemas"]["EvidencePlace"][];
        };
        /** @description A cell of a kind's keys; `source`: an earlier place of the query's token, where that matters. */
        EvidencePlace: {
            query: number;
            key: number;
            weight: number;
            source: number | null;
        };
        /** @description The longest distance from a word to the word that it attends to most. */
        Farthest: {
            layer: number;
            head: number;
            query: number;
            key: number;
            weight: number;
            distance: number;
        };
        /** @description A head, and the share of a row that it puts on the tokens in question. */
        Finder: {
            layer: number;
            head: number;
            weight: number;
        };
        /**
         * @description How well a kind describes a head, from 0 to 1; found from `bar` on. Null if the kind makes no sense
         *     there.
         */
        Finding: {
            kind: string;
            score: number | null;
            bar: number;
            evidence: string;
            weight: number | null;
            chance: number | null;
            queries: number | null;
        };
        /** @description Continue a text with a model; temperature 0 always takes the likeliest token. */
        GenerateJob: {
            /** @constant */
            kind: "generate";
            text: string;
            model?: string | null;
            name?: string;
            new_tokens?: number;
            temperature?: number;
            bound?: boolean;
        };
        /** @description The server's version and limits, and the models it can run. */
        Info: {
            version: string;
            models: components["schemas"]["ModelEntry"][];
            can_run_models: boolean;
        };
        /** @description The jobs that have not ended. */
        JobList: {
            jobs: components["schemas"]["JobState"][];
        };
        /** @description What a job made: a recording, overviews of some heads, or the effect of a cut. */
        JobResult: {
            recording?: string | null;
            heads?: number | null;
            knockout?: components["schemas"]["KnockoutResult"] | null;
        };
        /**
         * @description The progress of a job; while a text is generated also the new token, its alternatives, and what it
         *     attended to.
         *
         *     `seconds`: how long it has waited, or since it began how long it has run. `abandoned`: it was cancelled
         *     because the last page that followed its progress went away.
         */
        JobState: {
            id: string;
            kind: string;
            title: string;
            /** @enum {string} */
            state: "waiting" | "running" | "done" | "failed" | "cancelled";
            done: number;
            total: number;
            seconds: number;
            seconds_left: number | null;
            result: components["schemas"]["JobResult"] | null;
            error: string | null;
            abandoned: boolean;
            token?: string | null;
            top?: components["schemas"]["TokenProbability"][] | null;
            attended?: components["schemas"]["Attended"][] | null;
        };
        KeyWeight: {
            key: number;
            weight: number;
        };
        /** @description Cut, and run the model, which takes a while on a long text; the result has the answer. */
        KnockoutJob: {
            heads?: [
                number,
                number
            ][];
            edges?: components["schemas"]["EdgeCut"][];
            keys?: number[];
            at?: number;
            /** @enum {string} */
            instead?: "zero" | "mean" | "resample";
            stack?: string | null;
            /** @constant */
            kind: "knockout";
            recording: string;
            bound?: boolean;
        };
        /**
         * @description What to cut, and the token to look at; -1 is the last.
         *
         *     `instead` is what cut heads return: zero, their mean so far, or their output at an earlier token.
         *     `stack` is whose layers, queries and keys are meant, of a model that has several.
         */
        KnockoutRequest: {
            heads?: [
                number,
                number
            ][];
            edges?: components["schemas"]["EdgeCut"][];
            keys?: number[];
            at?: number;
            /** @enum {string} */
            instead?: "zero" | "mean" | "resample";
            stack?: string | null;
        };
        /**
         * @description The next token before and after a cut, the divergence between the two, and the change of the loss.
         *
         *     `tokens`: how many tokens the model read; of a long text those up to `at`.
         */
        KnockoutResult: {
            at: number;
            tokens: number;
            kl: number | null;
            before: components["schemas"]["Chance"][];
            after: components["schemas"]["Chance"][];
            loss_change: number | null;
        };
        /** @description A token, and its mean weight over all heads. */
        Looked: {
            position: number;
            weight: number;
        };
        /** @description The id of the recording concerned. */
        Made: {
            recording: string;
        };
        /** @description A model that the server can run. */
        ModelEntry: {
            name: string;
            bundled: boolean;
        };
        /** @description What a recording is to be called. */
        Named: {
            name: string;
        };
        /**
         * @description A table of numbers with names along both sides; `shape` is that of the whole table.
         *
         *     `worked`: how each number follows from the step before; empty if that is not written out.
         */
        Part: {
            name: string;
            shape: number[];
            rows: string[];
            columns: string[];
            data: (number | null)[][];
            worked: string[][];
        };
        /** @description The job that is computing it. */
        Pending: {
            job: string;
        };
        /** @description The error, in one sentence; `job` if waiting for that job helps. */
        Problem: {
            error: string;
            job?: string | null;
        };
        ProfileCurve: {
            position: number[];
            mass: number[];
        };
        /** @description Make the stored overviews of a recording: of all heads, of a layer's, or of one. */
        PyramidJob: {
            /** @constant */
            kind: "pyramid";
            recording: string;
            role?: string | null;
            layer?: number | null;
            head?: number | null;
            bound?: boolean;
        };
        QueryWeight: {
            query: number;
            weight: number;
        };
        /** @description Questions about a text with their answers; null if the recording has none. */
        Questions: {
            returning: components["schemas"]["Returning"] | null;
            farthest: components["schemas"]["Farthest"] | null;
        };
        /** @description Record a text with a model. */
        RecordJob: {
            /** @constant */
            kind: "record";
            text: string;
            model?: string | null;
            name?: string;
            /** @enum {string} */
            too_long?: "extend" | "windows" | "truncate" | "refuse";
            bound?: boolean;
        };
        /** @description One line of the list; `error` says why it cannot be opened, if so. */
        RecordingEntry: {
            id: string;
            name: string;
            model: string;
            tokens: number;
            stacks: string[];
            error?: string | null;
        };
        /** @description All recordings, and the one to open first. */
        Recordings: {
            recordings: components["schemas"]["RecordingEntry"][];
            default: string | null;
        };
        /** @description Sums over a rectangle of a map; `share` is the mass of one query, on average. */
        Region: {
            cells: number;
            visible: number;
            mass: number;
            share: number;
            mean: number;
            max: number;
            max_at: [
                number,
                number
            ] | null;
            entropy_mean: number | null;
        };
        /**
         * @description A word that comes back at `query` after `gap` tokens; `finders` attend to earlier mentions.
         *
         *     `key` is the token of these with the most weight in the first finder.
         */
        Returning: {
            word: string;
            mentions: number;
            query: number;
            key: number;
            gap: number;
            finders: components["schemas"]["Finder"][];
        };
        /** @description The heaviest keys of a query, and how spread its weights are. */
        Row: {
            query: number;
            top: components["schemas"]["KeyWeight"][];
            entropy: number;
            lse: number | null;
            mass_shown: number;
        };
        /** @description When each token that the decoder read begins in the sound, in seconds; null and why not. */
        Said: {
            seconds: number[] | null;
            why_not: string | null;
        };
        /** @description A PNG in base64; its patches or frames are `rows` × `columns` keys of the stack from `start` on. */
        Sight: {
            name: string;
            /** @enum {string} */
            kind: "image" | "sound";
            png: string;
            start: number;
            rows: number;
            columns: number;
        };
        /** @description The pictures among a stack's keys. */
        Sights: {
            pictures: components["schemas"]["Sight"][];
        };
        /**
         * @description Layers with maps of one shape, as a page needs to know them before it requests any map.
         *
         *     `windows`: how many keys each query of a layer sees, null if it sees everything before it. `documents`:
         *     the tokens at which a new document starts.
         */
        StackShape: {
            role: string;
            layers: number[];
            heads: number;
            kv_heads: number;
            queries: number;
            keys: number;
            windows: {
                [key: string]: number | null;
            };
            documents: number[];
            causal: boolean;
            levels: number;
        };
        /** @description The id of a job, with which it is followed and ended. */
        Started: {
            id: string;
        };
        /** @description Of one head: values by row, curves by distance and position, single numbers. */
        Statistics: {
            names: string[];
            rows: {
                [key: string]: (number | null)[];
            };
            curves: components["schemas"]["Curves"];
            numbers: {
                [key: string]: number | null;
            };
        };
        /** @description One step of the arithmetic, with its tables. */
        Step: {
            name: string;
            title: string;
            formula: string;
            sentence: string;
            parts: components["schemas"]["Part"][];
        };
        /** @description The steps of one query; a worked example has neither a layer nor a group of heads. */
        Steps: {
            query: number;
            token: string;
            layer?: number | null;
            head: number;
            keys: number[];
            tokens: string[];
            visible: number;
            more: number;
            dim: number;
            group?: number | null;
            scale: number;
            temperature: number;
            scaled: boolean;
            entropy: number | null;
            steps: components["schemas"]["Step"][];
            next: components["schemas"]["TokenProbability"][];
        };
        /** @description A token that may come next. */
        TokenProbability: {
            token: string;
            id: number;
            probability: number;
        };
        /** @description Token ids, and where each stands in the text, in code points. */
        Tokens: {
            text: string;
            ids: number[];
            starts: number[];
            stops: number[];
            pieces: string[];
        };
        /** @description The names of the worked examples. */
        Worked: {
            names: string[];
        };
    };
}
