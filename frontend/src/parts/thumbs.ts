import type { Sight, Source } from "../source/source";

/** Pieces of a picture in place of the tokens that stand for them. */

export interface Thumb {
  image: HTMLImageElement;
  /** The piece, in pixels of the picture. */
  x: number;
  y: number;
  width: number;
  height: number;
  /** Row and column of a patch; "" for a frame of a sound, which its time names. */
  name: string;
}

/** The piece of a picture that a token of the keys stands for, if any. */
export type Thumbs = (token: number) => Thumb | null;

export async function loadThumbs(source: Source, rec: string, role: string, signal: AbortSignal): Promise<Thumbs> {
  const { pictures } = await source.pictures(rec, role, signal);
  const loaded = await Promise.all(pictures.map(async (sight) => ({ sight, image: await imageOf(sight) })));
  return (token) => {
    const found = loaded.find(({ sight }) => token >= sight.start && token < sight.start + sight.rows * sight.columns);
    return found ? pieceOf(found.sight, found.image, token - found.sight.start) : null;
  };
}

async function imageOf({ png }: Sight): Promise<HTMLImageElement> {
  const image = new Image();
  image.src = `data:image/png;base64,${png}`;
  await image.decode();
  return image;
}

function pieceOf({ kind, rows, columns }: Sight, image: HTMLImageElement, place: number): Thumb {
  const [row, column] = [Math.floor(place / columns), place % columns];
  const [width, height] = [image.naturalWidth / columns, image.naturalHeight / rows];
  const name = kind === "sound" ? "" : `${row},${column}`;
  return { image, x: column * width, y: row * height, width, height, name };
}

/** A piece as a PNG of its own, as a data address: for drawings, which cannot cut. */
export function cutOut({ image, x, y, width, height }: Thumb): string {
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.round(width));
  canvas.height = Math.max(1, Math.round(height));
  canvas.getContext("2d")?.drawImage(image, x, y, width, height, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL("image/png");
}
