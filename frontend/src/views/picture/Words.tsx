import { Failure } from "../../parts/failure";
import type { TextModel } from "../text/model";
import { listensAt, type Spoken, type Word } from "./said";

/** What was said, each word with the time at which it begins. */
export function Words({ model, spoken, failure }: { model: TextModel; spoken: Spoken | null; failure: string | null }) {
  const chosen = model.direction.value === "keys" ? model.chosen.value : null;
  if (failure) return <Failure text={failure} />;
  if (!spoken) {
    return (
      <p class="small soft" role="status">
        Finding when each word was said…
      </p>
    );
  }
  if (spoken.whyNot) return <p class="small soft">When words were said is not known: {spoken.whyNot}</p>;
  const choose = (word: Word): void => {
    model.direction.value = "keys";
    model.choose(listensAt(word));
  };
  return (
    <section class="picture-words" aria-label="What was said, and when" data-testid="picture-words">
      <h2>What was said, and when</h2>
      <p class="small soft">Click a word: the token before it, which predicts it, is where the model listens for it.</p>
      <div class="picture-said-words">
        {spoken.words.map((word) => (
          <button
            key={word.first}
            type="button"
            aria-pressed={chosen === listensAt(word)}
            disabled={!model.offers(listensAt(word))}
            onClick={() => choose(word)}
          >
            {word.text} <span class="soft">{word.seconds.toFixed(2)} s</span>
          </button>
        ))}
      </div>
    </section>
  );
}
