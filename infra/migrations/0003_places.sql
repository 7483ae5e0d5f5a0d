-- Places of files that have no pages or lines of their own: slides, sheets with rows, files inside files; and the label that
-- is printed on a page, beside the PDF's own index.
ALTER TABLE docwell.version_chunk
    ADD COLUMN page_label text,
    ADD COLUMN slide      integer,
    ADD COLUMN sheet      text,
    ADD COLUMN row_start  integer,
    ADD COLUMN row_end    integer,
    ADD COLUMN attachment text;  -- names from the outermost in, ` > ` between them
