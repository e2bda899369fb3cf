# Take the patch of /workspace (read-only) against the kept repository. Runs in a sandbox; the patch is all of its output.
git add --all -- . 2> /tmp/said
status=$?

if [[ $status != 0 || $(< /tmp/said) == *"embedded git repository"* ]]; then
    # Repositories the agent made, or files that cannot be read: take every file there is, one by one.
    cp --force "$GIT_DIR/index" "$GIT_INDEX_FILE"
    git ls-files -z | git update-index --remove -z --stdin 2>> /tmp/said
    find . \( -name .git -o -name __pycache__ -o -name '.*_cache' \) -prune \
        -o \( -type l -o -type f -readable \) ! -name '*.py[co]' -print0 | git update-index --add -z --stdin 2>> /tmp/said
fi

git diff --cached --binary --full-index --no-renames --no-ext-diff --no-textconv --no-color --ignore-submodules=all \
    HEAD 2>> /tmp/said || { cat /tmp/said; exit 3; }
