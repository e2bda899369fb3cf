# Take the patch of /workspace (read-only) against the kept repository. Runs in a sandbox; the patch is all of its output.
set -e
mkdir /tmp/objects
cp "$GIT_DIR/index" "$GIT_INDEX_FILE"
git add --all --ignore-errors -- . 2> /tmp/said || true

# Repositories the agent made: take their files, not a link to a commit nobody has.
git ls-files --stage -z | while IFS= read -r -d '' line; do
    case "$line" in 160000*) printf '%s\0' "${line#*$'\t'}" ;; esac
done > /tmp/nested
if [ -s /tmp/nested ]; then
    git update-index --force-remove -z --stdin < /tmp/nested
    xargs -0 sh -c 'find "$@" -name .git -prune -o \( -type f -o -type l \) -print0' find < /tmp/nested > /tmp/files
    git update-index --add -z --stdin < /tmp/files 2>> /tmp/said
fi

git diff --cached --binary --full-index --no-renames --no-ext-diff --no-textconv --no-color --ignore-submodules=all \
    HEAD 2>> /tmp/said || { cat /tmp/said; exit 3; }
