/* Folds the cells of an attention map into statistics while they are in the cache.
 *
 * A map of n x n weights is never stored. This file computes it again from q, k and one log-sum-exp per row, a panel
 * of 8 rows x 512 keys at a time, and before a panel's memory is used for the next it has been read by everything that
 * was asked for. A panel fits in the first-level cache, so reading it once more costs next to nothing: that is why each
 * statistic below is a loop of its own.
 *
 *     keys of 512 at a time, packed                       pack_keys
 *       panels of 8 rows                                  panel.h
 *         s = scale * q k^T, or copied from the caller    scores
 *         -inf where a pair may not attend                hide
 *         what is about scores                            note_peaks, count
 *         w = exp(s - lse)                                weigh
 *         what is about weights                           mix, add_columns, ...
 *
 * Two neighbours use panels otherwise: attend.h computes attention itself, diverge.h compares heads.
 *
 * Rules that the loops rely on, beside those of panel.h:
 * - Every lse is a number or +inf (a row that sees nothing); the caller looks first.
 * - Keys come in rising order, so of two equal entries the one seen first is the one to keep.
 * - No loop depends on the number of threads. The caller splits a map over threads in the same way every time,
 *   gives each part its own sums, and adds those up in a fixed order.
 */
#include "attend.h"
#include "diverge.h"
#include "panel.h"

#include <stdatomic.h>

/* The threads that PyTorch's own operations run on, where its OpenMP is GNU's and in this process. They are awake when
 * an operation has just ended; threads of our own would have to wait until those stop spinning. */
#if defined(__linux__)
void GOMP_parallel(void (*work)(void *), void *given, unsigned threads, unsigned flags) __attribute__((weak));
#else
static void (*const GOMP_parallel)(void (*)(void *), void *, unsigned, unsigned) = NULL;
#endif

/* -- weights --------------------------------------------------------------------------------------------------- */

static void weigh_by_lse(const struct panel *p)
{
    const struct job *job = p->job;
    struct tally tally[ROWS];
    float lse[ROWS];
    for (int r = 0; r < ROWS; r++)
        lse[r] = r < p->rows ? job->lse[p->row + r] : INFINITY;
    weigh(p, lse, tally);
    for (int r = 0; r < p->rows; r++) {
        if (job->entropy)
            job->entropy[p->row + r] -= tally[r].logs;
        if (job->distance)
            job->distance[p->row + r] += distance(p, r, &tally[r]);
    }
}

/* Blocks of more than a panel's rows add up their columns anyway: see close_band. */
static int columns_by_band(const struct job *job) { return job->size > ROWS && !job->row_weights; }

static void add_columns(const struct panel *p)
{
    float weight[ROWS] = {0};
    for (int r = 0; r < p->rows; r++)
        weight[r] = p->job->row_weights ? p->job->row_weights[p->row + r] : 1.0f;
    float *to = p->job->column_sums + p->key;
    for (int j = 0; j < p->wide; j += LANES) {
        vec sum = {0};
        for (int r = 0; r < ROWS; r++)
            sum += weight[r] * load(cells(p, r) + j);
        store(to + j, load(to + j) + sum);
    }
}

static void raise_columns(const struct panel *p)
{
    float *to = p->job->column_tops + p->key;
    for (int j = 0; j < p->wide; j += LANES) {
        vec top = load(to + j);
        for (int r = 0; r < p->rows; r++)
            top = vmax(top, load(cells(p, r) + j));
        store(to + j, top);
    }
}

/* The cells of a diagonal lie one column further in each row. Before the first column and after the last are zeros. */
static void add_diagonals(const struct panel *p)
{
    float *to = p->job->diagonals + p->key - p->row;
    for (int j = -LANES * ((ROWS + LANES - 1) / LANES); j < p->wide; j += LANES) {
        vec sum = {0};
        for (int r = 0; r < ROWS; r++)
            sum += load(cells(p, r) + j + r);
        store(to + j, load(to + j) + sum);
    }
}

/* Lists a weight that is above the last of k weights in falling order; equals keep their order. */
static void insert(float *top, int64_t *keys, int64_t k, float w, int64_t key)
{
    int64_t place = k - 1;
    for (; place > 0 && top[place - 1] < w; place--) {
        top[place] = top[place - 1];
        keys[place] = keys[place - 1];
    }
    top[place] = w;
    keys[place] = key;
}

/* One bit for each of PEEK weights above a bar: few are, and one look finds that out. */
static uint64_t above_bar(const float *w, float bar)
{
    uint64_t found = 0;
    for (int i = 0; i < PEEK; i += LANES)
        found |= (uint64_t)above(load(w + i), splat(bar)) << i;
    return found;
}

/* A bar for a row that has listed nothing yet, where everything would be listed and most of it pushed out again. The
 * largest numbers of each lane are LANES weights of the row, so the k-th of them is at most its k-th largest. */
static float first_bar(const float *w, int wide, int64_t k)
{
    vec tops = {0};
    for (int j = 0; j < wide; j += LANES)
        tops = vmax(tops, load(w + j));
    float bar = INFINITY;
    for (int i = 0; i < LANES; i++)
        if (__builtin_popcount(above(tops, splat(tops[i]))) < k && tops[i] < bar)
            bar = tops[i];
    /* Just below it, as it is to be listed itself; next to 0 there may be nothing just below. */
    float below = bar * (1.0f - 0x1p-23f);
    return below < bar ? below : 0.0f;
}

static void list_top(const struct panel *p)
{
    int64_t k = p->job->top_k;
    for (int r = 0; r < p->rows; r++) {
        const float *w = cells(p, r);
        float *top = p->job->top + (p->row + r) * k;
        int64_t *keys = p->job->top_key + (p->row + r) * k;
        float bar = top[k - 1] == 0.0f && k <= LANES ? first_bar(w, p->wide, k) : 0.0f;
        for (int j = 0; j < p->wide; j += PEEK) {
            bar = bar > top[k - 1] ? bar : top[k - 1];
            for (uint64_t found = above_bar(w + j, bar); found; found &= found - 1) {
                int at = j + __builtin_ctzll(found);
                /* The last one listed may have risen since. */
                if (w[at] > top[k - 1])
                    insert(top, keys, k, w[at], p->key + at);
            }
        }
    }
}

static void count(const struct panel *p)
{
    const struct job *job = p->job;
    vec tops = splat(-INFINITY);
    for (int r = 0; r < p->rows; r++)
        for (int j = 0; j < p->wide; j += LANES)
            tops = vmax(tops, load(cells(p, r) + j));
    float top = largest(tops);
    for (int64_t b = 0; b < job->n_borders && job->borders[b] <= top; b++) {
        vec border = splat(job->borders[b]);
        ivec reached = {0};
        for (int r = 0; r < p->rows; r++)
            for (int j = 0; j < p->wide; j += LANES)
                reached -= load(cells(p, r) + j) >= border;
        for (int i = 0; i < LANES; i++)
            job->bins[b] += reached[i];
    }
}

/* -- blocks ---------------------------------------------------------------------------------------------------- */

/* Blocks are as high as they like. Down the rows they are kept as one sum and one maximum per column; where a row of
 * blocks ends, the columns are folded too. */
struct band {
    float sum[WIDTH + PAD], top[WIDTH + PAD];
    int64_t first; /* the key of entry 0 */
    int from, to;  /* the entries in use */
};

static void clear_band(struct band *band, int from, int to)
{
    memset(band->sum + from, 0, sizeof(float) * (to - from));
    memset(band->top + from, 0, sizeof(float) * (to - from));
    band->from = WIDTH;
    band->to = 0;
}

/* Blocks narrower than a vector. With a size that is known when this is compiled, a vector is of several blocks; what
 * a block has outside of the entries in use is 0. */
static inline __attribute__((always_inline)) void
close_narrow(const struct band *band, float *sums, float *tops, int size)
{
    for (int b = band->from / size; b <= (band->to - 1) / size; b++) {
        float sum = 0.0f, top = 0.0f;
        for (int i = 0; i < size; i++) {
            float s = band->sum[b * size + i], t = band->top[b * size + i];
            sum += s;
            top = t > top ? t : top;
        }
        sums[b] += sum;
        tops[b] = tops[b] > top ? tops[b] : top;
    }
}

static void close_wide(const struct band *band, float *sums, float *tops, int64_t size)
{
    /* Divisions are slow: the number of the block is counted on. */
    int64_t first = band->first / size, block = (band->first + band->from) / size;
    for (int j = band->from; j < band->to; block++) {
        int stop = (int)min((block + 1) * size - band->first, band->to);
        float sum = 0.0f, top = 0.0f;
        for (; stop - j >= LANES; j += LANES) {
            sum += total(load(band->sum + j));
            float high = largest(load(band->top + j));
            top = high > top ? high : top;
        }
        for (; j < stop; j++) {
            sum += band->sum[j];
            top = band->top[j] > top ? band->top[j] : top;
        }
        sums[block - first] += sum;
        tops[block - first] = tops[block - first] > top ? tops[block - first] : top;
    }
}

static void close_band(const struct job *job, struct band *band, int64_t row)
{
    if (band->from >= band->to)
        return;
    /* Sums that were not requested go to a scratch buffer. */
    float nowhere[WIDTH + PAD];
    int64_t at = (row / job->size - job->row_start / job->size) * job->block_stride + band->first / job->size;
    float *sums = job->block_sums ? job->block_sums + at : nowhere;
    float *tops = job->block_tops ? job->block_tops + at : nowhere;
    if (sums == nowhere || tops == nowhere)
        memset(nowhere, 0, sizeof nowhere);
    if (job->column_sums && columns_by_band(job)) {
        float *to = job->column_sums + band->first;
        for (int j = band->from; j < band->to; j++)
            to[j] += band->sum[j];
    }
    switch (job->size) {
    case 1: close_narrow(band, sums, tops, 1); break;
    case 2: close_narrow(band, sums, tops, 2); break;
    case 4: close_narrow(band, sums, tops, 4); break;
    case 8: close_narrow(band, sums, tops, 8); break;
    default: close_wide(band, sums, tops, job->size);
    }
    clear_band(band, band->from, band->to);
}

/* Rows `from` ... `to` - 1 of a panel, which lie in one row of blocks. */
static void add_to_band(const struct panel *p, struct band *band, int from, int to)
{
    int at = (int)(p->key - band->first);
    for (int j = 0; j < p->wide; j += LANES) {
        vec sum = load(band->sum + at + j), top = load(band->top + at + j);
        for (int r = from; r < to; r++) {
            vec w = load(cells(p, r) + j);
            sum += w;
            top = vmax(top, w);
        }
        store(band->sum + at + j, sum);
        store(band->top + at + j, top);
    }
    /* Columns before `skip` are not the piece's: their block may not be there. */
    band->from = (int)min(band->from, at + p->skip);
    band->to = (int)max(band->to, at + p->keys);
}

/* A row of blocks may end in the middle of a panel. */
static void add_blocks(const struct panel *p, struct band *band)
{
    int64_t size = p->job->size;
    for (int r = 0, to; r < p->rows; r = to) {
        to = (int)min(p->rows, r + size - (p->row + r) % size);
        add_to_band(p, band, r, to);
        if ((p->row + to) % size == 0)
            close_band(p->job, band, p->row + r);
    }
}

/* -- the loop -------------------------------------------------------------------------------------------------- */

struct workspace {
    float (*cell)[PITCH];
    float *queries, *keys;
    struct band *band;
};

static void read_panel(const struct panel *p, const struct workspace *work)
{
    const struct job *job = p->job;
    const float *queries = work->queries + (p->row - job->row_start) * job->dim;
    scores(p, queries, work->keys + (p->key - work->band->first) * job->dim);
    hide(p);
    if (job->peak) {
        float top[ROWS];
        find_tops(p, top);
        note_peaks(p, top);
    }
    if (job->bins && job->bins_of_scores)
        count(p);
    weigh_by_lse(p);
    if (job->n_columns)
        mix(p);
    if (job->column_sums && !columns_by_band(job))
        add_columns(p);
    if (job->column_tops)
        raise_columns(p);
    if (job->diagonals)
        add_diagonals(p);
    if (job->size)
        add_blocks(p, work->band);
    if (job->top)
        list_top(p);
    if (job->bins && !job->bins_of_scores)
        count(p);
}

/* All rows against the keys first ... stop - 1, at most WIDTH. */
static void read_keys(const struct job *job, const struct workspace *work, int64_t first, int64_t stop)
{
    int packed = job->scores != NULL;
    work->band->first = first;
    clear_band(work->band, 0, WIDTH + PAD);
    for (int64_t row = job->row_start; row < job->row_stop; row += ROWS) {
        struct panel p = {.job = job, .row = row, .rows = (int)min(ROWS, job->row_stop - row), .cell = work->cell};
        if (!find_keys(&p, first, stop)) {
            /* What was collected belongs to rows above. */
            if (job->size && row / job->size != (row + p.rows) / job->size)
                close_band(job, work->band, row);
            continue;
        }
        if (!packed)
            pack_keys(job, first, stop, work->keys);
        packed = 1;
        read_panel(&p, work);
    }
    if (job->size)
        close_band(job, work->band, job->row_stop - 1);
}

/* 0, or 1 if there is no memory left. */
static int fold(const struct job *job)
{
    if (job->n_runs == 0 || job->row_start >= job->row_stop)
        return 0;
    int64_t rows = (job->row_stop - job->row_start + ROWS - 1) / ROWS * ROWS, dim = job->scores ? 0 : job->dim;
    size_t panel = sizeof(float[ROWS][PITCH]), queries = sizeof(float) * rows * dim, keys = sizeof(float) * WIDTH * dim;
    char *block = malloc(panel + queries + keys + sizeof(struct band) + 4 * 64), *next = block;
    if (!block)
        return 1;
    struct workspace work = {
        .cell = carve(&next, panel),
        .queries = carve(&next, queries),
        .keys = carve(&next, keys),
        .band = carve(&next, sizeof(struct band)),
    };
    if (!job->scores)
        pack_queries(job, work.queries);
    int64_t last = job->runs[job->n_runs - 1].stop;
    for (int64_t first = job->runs[0].first / WIDTH * WIDTH; first < last; first += WIDTH)
        read_keys(job, &work, first, min(first + WIDTH, last));
    free(block);
    return 0;
}

static int perform(const struct job *job)
{
    return job->members ? diverge(job) : job->out ? attend(job) : fold(job);
}

struct queue {
    const struct job *const *jobs;
    int64_t n;
    atomic_int_fast64_t next;
    atomic_int failed;
};

static void work(void *given)
{
    struct queue *queue = given;
    for (int64_t i; (i = atomic_fetch_add(&queue->next, 1)) < queue->n;)
        if (perform(queue->jobs[i]))
            atomic_store(&queue->failed, 1);
}

/* Whether regard_fold can use more than one thread. */
int regard_has_threads(void)
{
    return GOMP_parallel != NULL;
}

/* Does n jobs, of which no two write to the same place; 0, or 1 if there was no memory left. */
int regard_fold(const struct job *const *jobs, int64_t n, unsigned threads)
{
    struct queue queue = {.jobs = jobs, .n = n};
    if (threads > 1 && n > 1 && regard_has_threads())
        GOMP_parallel(work, &queue, threads, 0);
    else
        work(&queue);
    return atomic_load(&queue.failed);
}

/* Does n jobs that lie behind each other, after adding addresses to some of their fields: given[i] to the word
 * fields[i]. First the memory at given[i] becomes a copy of sizes[i] bytes at fresh[i]. */
int regard_launch(const struct job *table, int64_t n, const uint64_t *given, const int64_t *fields, void *const *fresh,
                  const int64_t *sizes, int64_t n_given, unsigned threads)
{
    struct job *jobs = malloc(sizeof(struct job) * (size_t)n);
    const struct job **each = malloc(sizeof *each * (size_t)n);
    int failed = !jobs || !each;
    for (int64_t i = 0; i < n_given && !failed; i++)
        if (sizes[i])
            memcpy((void *)(uintptr_t)given[i], fresh[i], (size_t)sizes[i]);
    for (int64_t at = 0; at < n && !failed; at++) {
        uint64_t words[sizeof(struct job) / sizeof(uint64_t)];
        memcpy(words, table + at, sizeof words);
        for (int64_t i = 0; i < n_given; i++)
            words[fields[i]] += given[i];
        memcpy(jobs + at, words, sizeof words);
        each[at] = jobs + at;
    }
    failed = failed || regard_fold(each, n, threads);
    free(jobs);
    free(each);
    return failed;
}

/* The largest of n numbers without their signs, as bits: those of floats are in order, inf and then NaN above all. */
static int32_t largest_bits(const float *x, int64_t n, int64_t stride)
{
    ivec most = {0};
    int32_t last = 0;
    int64_t j = 0;
    for (; stride == 1 && j + LANES <= n; j += LANES) {
        ivec bits = (ivec)load(x + j) & INT32_MAX, more = bits > most;
        most = (bits & more) | (most & ~more);
    }
    for (; j < n; j++) {
        int32_t bits;
        memcpy(&bits, x + j * stride, sizeof bits);
        bits &= INT32_MAX;
        last = bits > last ? bits : last;
    }
    for (int i = 0; i < LANES; i++)
        last = most[i] > last ? most[i] : last;
    return last;
}

static int is_within(int32_t bits, float limit)
{
    int32_t bound;
    memcpy(&bound, &limit, sizeof bound);
    return bits <= bound;
}

/* Whether n numbers are all of at most this size, and none is NaN. */
int regard_within(const float *x, int64_t n, float limit)
{
    return is_within(largest_bits(x, n, 1), limit);
}

/* The same for a tensor of four sizes and four strides. */
int regard_within_strided(const float *x, const int64_t *layout, float limit)
{
    const int64_t *size = layout, *stride = layout + 4;
    for (int64_t a = 0; a < size[0]; a++)
        for (int64_t b = 0; b < size[1]; b++)
            for (int64_t c = 0; c < size[2]; c++)
                if (!is_within(largest_bits(x + a * stride[0] + b * stride[1] + c * stride[2], size[3], stride[3]), limit))
                    return 0;
    return 1;
}

/* e^x of n numbers, for tests. */
void regard_exp(const float *x, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i += LANES) {
        float part[LANES] = {0};
        memcpy(part, x + i, sizeof(float) * min(LANES, n - i));
        store(part, vexp(vmax(load(part), splat(LOWEST))));
        memcpy(y + i, part, sizeof(float) * min(LANES, n - i));
    }
}

/* log x of n numbers, likewise. */
void regard_log(const float *x, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i += LANES) {
        float part[LANES] = {0};
        memcpy(part, x + i, sizeof(float) * min(LANES, n - i));
        store(part, vlog(vmax(load(part), splat(SMALLEST))));
        memcpy(y + i, part, sizeof(float) * min(LANES, n - i));
    }
}

const char *regard_isa(void) { return ISA; }

/* A library and its caller must mean the same by a job. */
int64_t regard_job_size(void) { return sizeof(struct job); }
